//! Calls of the driver from async code. A call may hang for as long as the machine runs, and nothing can end a hung call. So
//! the number of calls per card is limited: calls stuck at one card leave threads for the other cards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tessera_api::{DeviceName, PciBusId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Number of concurrent calls per card: changes of a card come one after the other anyway, and queries beside them are short.
const PLACES: usize = 2;

/// Work on a card takes several calls, and so correspondingly longer than a query.
const CHANGE: u32 = 2;

/// A call without a result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// This call or one before does not return. The card is not queried again before the return.
    #[error(
        "{what} does not answer: a call of the driver has been running for {running:?}. See the node's kernel log for NVRM \
             messages; the card may need a reset, or the node to be started again"
    )]
    NotAnswering {
        /// The card, or the driver as a whole.
        what: String,
        /// Duration so far, in whole seconds.
        running: Duration,
    },
    /// The call panicked.
    #[error("a call of the driver broke off: {0}")]
    Panic(Arc<str>),
    /// The process is ending.
    #[error("this process is ending")]
    Stopping,
}

/// Calls in flight.
#[derive(Debug)]
pub struct DriverCalls {
    within: Duration,
    subjects: Mutex<BTreeMap<Option<PciBusId>, Arc<Subject>>>,
}

/// A card, or the driver as a whole.
#[derive(Debug)]
struct Subject {
    places: Arc<Semaphore>,
    running: Mutex<Vec<Call>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    since: Instant,
    /// Deadline of the call.
    due: Instant,
}

/// A call in flight, on any thread.
struct Running {
    subject: Arc<Subject>,
    call: Call,
    _place: OwnedSemaphorePermit,
}

impl DriverCalls {
    /// No calls so far. The argument is the timeout of a query.
    #[must_use]
    pub fn new(within: Duration) -> Self {
        Self { within, subjects: Mutex::default() }
    }

    /// Queries the driver about a card. A call without an answer in time is abandoned, and while still in flight blocks further
    /// queries about the card.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn ask<T: Send + 'static>(
        &self,
        card: PciBusId,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (running, subject) = self.begin(Some(card), self.within).await?;
        self.answer(Some(card), &subject, self.within, running.run(question)).await
    }

    /// As [`Self::ask`], for the driver as a whole.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn ask_driver<T: Send + 'static>(
        &self,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (running, subject) = self.begin(None, self.within).await?;
        self.answer(None, &subject, self.within, running.run(question)).await
    }

    /// Runs work of several calls. After the timeout the work goes on alone and keeps others from the card until its end.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn work<T: Send + 'static>(
        &self,
        card: PciBusId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let longest = self.within * CHANGE;
        let (running, subject) = self.begin(Some(card), longest).await?;
        self.answer(Some(card), &subject, longest, running.run(work)).await
    }

    /// As [`Self::work`], without a timeout.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn finish<T: Send + 'static>(
        &self,
        card: PciBusId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (running, _) = self.begin(Some(card), self.within * CHANGE).await?;
        running.run(work).await
    }

    /// The first of some cards with an overdue call, as an error.
    #[must_use]
    pub fn hanging<'a>(&self, cards: impl IntoIterator<Item = &'a PciBusId>) -> Option<CallError> {
        cards.into_iter().find_map(|card| {
            let subject = self.subjects().get(&Some(*card)).cloned()?;
            Some(not_answering(Some(*card), subject.overdue()?))
        })
    }

    /// Calls in flight: the card, or the driver as a whole, and the start time.
    #[must_use]
    pub fn running(&self) -> Vec<(Option<PciBusId>, std::time::Instant)> {
        let subjects: Vec<_> =
            self.subjects().iter().map(|(card, subject)| (*card, Arc::clone(subject))).collect();
        let of = |(card, subject): (Option<PciBusId>, Arc<Subject>)| {
            let since: Vec<Instant> = subject.running().iter().map(|call| call.since).collect();
            since.into_iter().map(move |since| (card, since.into_std()))
        };
        subjects.into_iter().flat_map(of).collect()
    }

    async fn begin(
        &self,
        card: Option<PciBusId>,
        longest: Duration,
    ) -> Result<(Running, Arc<Subject>), CallError> {
        let subject = self.subjects().entry(card).or_default().clone();
        if let Some(since) = subject.overdue() {
            return Err(not_answering(card, since));
        }
        let place = timeout(longest, subject.places.clone().acquire_owned()).await;
        let place = match place {
            Ok(place) => place.map_err(|_| CallError::Stopping)?,
            Err(_) => return Err(not_answering(card, subject.oldest().unwrap_or_else(Instant::now))),
        };
        let since = Instant::now();
        let call = Call { since, due: since + longest };
        subject.running().push(call);
        Ok((Running { subject: subject.clone(), call, _place: place }, subject))
    }

    async fn answer<T>(
        &self,
        card: Option<PciBusId>,
        subject: &Subject,
        longest: Duration,
        running: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let since = Instant::now();
        let late = || not_answering(card, subject.oldest().unwrap_or(since));
        timeout(longest, running).await.unwrap_or_else(|_| Err(late()))
    }

    fn subjects(&self) -> MutexGuard<'_, BTreeMap<Option<PciBusId>, Arc<Subject>>> {
        self.subjects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Subject {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(PLACES)), running: Mutex::default() }
    }
}

impl Subject {
    fn running(&self) -> MutexGuard<'_, Vec<Call>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Start of an overdue call.
    fn overdue(&self) -> Option<Instant> {
        let now = Instant::now();
        self.running().iter().filter(|call| call.due <= now).map(|call| call.since).min()
    }

    fn oldest(&self) -> Option<Instant> {
        self.running().iter().map(|call| call.since).min()
    }
}

impl Running {
    /// On a thread for blocking calls; continues after this future is dropped.
    async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, CallError> {
        let span = tracing::Span::current();
        let work = move || {
            let _running = self;
            span.in_scope(work)
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            if error.is_panic() { CallError::Panic(error.to_string().into()) } else { CallError::Stopping }
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = self.subject.running();
        if let Some(position) = running.iter().position(|call| *call == self.call) {
            running.swap_remove(position);
        }
    }
}

fn not_answering(card: Option<PciBusId>, since: Instant) -> CallError {
    let what =
        card.map_or_else(|| "the driver".to_owned(), |card| format!("card {}", DeviceName::Card(card)));
    CallError::NotAnswering { what, running: Duration::from_secs(since.elapsed().as_secs()) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    fn card(bus: u8) -> PciBusId {
        PciBusId::new(0, bus, 0, 0).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_card_that_hangs_takes_two_threads_at_most_and_nothing_of_another() {
        let calls = Arc::new(DriverCalls::new(SHORT));
        let (release, hang) = mpsc::channel::<()>();
        let hang = Arc::new(Mutex::new(hang));
        let (began, begun) = mpsc::channel();
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (calls, hang, began) = (calls.clone(), hang.clone(), began.clone());
                tokio::spawn(async move {
                    let question = move || {
                        began.send(()).unwrap();
                        let _ = hang.lock().unwrap().recv();
                    };
                    calls.ask(card(1), question).await
                })
            })
            .collect();
        for task in tasks {
            let error = task.await.unwrap().unwrap_err();
            assert!(
                matches!(&error, CallError::NotAnswering { what, .. } if what == "card gpu-01-00"),
                "{error}"
            );
        }
        assert_eq!(begun.try_iter().count(), PLACES);
        assert!(calls.hanging(&[card(2), card(1)]).is_some());
        assert!(calls.hanging(&[card(2)]).is_none());
        assert_eq!(calls.ask(card(2), || 2).await.unwrap(), 2);
        assert_eq!(calls.ask_driver(|| 3).await.unwrap(), 3);

        drop(release);
        let end = Instant::now() + Duration::from_secs(60);
        while calls.hanging(&[card(1)]).is_some() {
            assert!(Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(calls.ask(card(1), || 1).await.unwrap(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_is_dropped_leaves_its_place_taken_as_long_as_the_call_runs() {
        let calls = DriverCalls::new(SHORT);
        let (release, hang) = mpsc::channel::<()>();
        let dropped = timeout(SHORT / 10, calls.finish(card(1), move || hang.recv().is_err()));
        assert!(dropped.await.is_err());
        tokio::time::sleep(SHORT * 3).await;
        assert!(calls.hanging(&[card(1)]).is_some(), "nobody waits for it, and it hangs");
        drop(release);
    }
}
