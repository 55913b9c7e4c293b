//! Threads for driver calls. A call may hang for as long as the machine runs, and nothing can end such a call.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tessera_api::PciBusId;
use tokio::sync::Notify;

/// Subject of a driver call. At most one call per subject runs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// The driver's events.
    Events,
    /// The driver's versions.
    Driver,
    /// The list of cards.
    Cards,
    /// One card.
    Card(PciBusId),
    /// The connections of a card to the cards after it in the list.
    Pairs(PciBusId),
}

/// A driver call, run on a thread of its own.
pub(super) type Question<T> = Box<dyn FnOnce() -> T + Send>;

/// Runs driver calls, each on a thread of its own, with a time limit. A call not returning in time is
/// abandoned, and its subject is not asked again until the call returns. So each hanging subject takes one thread and
/// delays nothing else.
#[derive(Debug)]
pub(super) struct Readers {
    /// Time limit of a call.
    pub(super) deadline: Duration,
    returned: Arc<Notify>,
    left: BTreeMap<Subject, Arc<Call>>,
}

/// A driver call.
#[derive(Debug)]
struct Call(Mutex<Progress>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Running,
    /// Its answer is in the channel.
    Answered,
    /// Abandoned: nobody waits for the call any more.
    Left,
    /// Returned after being abandoned.
    Returned,
}

impl Readers {
    /// No calls so far.
    pub(super) fn new(deadline: Duration) -> Self {
        Self { deadline, returned: Arc::default(), left: BTreeMap::new() }
    }

    /// Notifies `returned` when an abandoned call returns.
    pub(super) fn telling(self, returned: Arc<Notify>) -> Self {
        Self { returned, ..self }
    }

    /// Whether an abandoned call about the subject has not returned yet.
    pub(super) fn is_hanging(&self, subject: Subject) -> bool {
        self.left.get(&subject).is_some_and(|call| *call.progress() == Progress::Left)
    }

    /// Subjects with hanging calls.
    pub(super) fn hanging(&self) -> impl Iterator<Item = Subject> + '_ {
        self.left.keys().copied().filter(|subject| self.is_hanging(*subject))
    }

    /// The answers received in time, in the order of the questions. Subjects with a hanging call are not asked.
    ///
    /// # Panics
    /// If a question panicked.
    pub(super) fn ask<T: Send + 'static>(
        &mut self,
        questions: Vec<(Subject, Question<T>)>,
    ) -> Vec<(Subject, Option<T>)> {
        let until = Instant::now() + self.deadline;
        let (sender, receiver) = mpsc::channel();
        let mut waiting: Vec<Option<(Subject, Arc<Call>)>> = Vec::new();
        let mut answers: Vec<(Subject, Option<T>)> = Vec::new();
        for (subject, question) in questions {
            let number = answers.len();
            answers.push((subject, None));
            if self.is_hanging(subject) {
                waiting.push(None);
                continue;
            }
            let call = Arc::new(Call(Mutex::new(Progress::Running)));
            waiting.push(Some((subject, call.clone())));
            let (sender, returned) = (sender.clone(), self.returned.clone());
            thread::spawn(move || {
                let answer = catch_unwind(AssertUnwindSafe(question));
                let mut progress = call.progress();
                if *progress == Progress::Running {
                    *progress = Progress::Answered;
                    // The receiver exists as long as the call is not abandoned.
                    let _ = sender.send((number, answer));
                } else {
                    *progress = Progress::Returned;
                    drop(progress);
                    returned.notify_one();
                }
            });
        }
        drop(sender);
        let mut take = |(number, answer): (usize, Result<T, Box<dyn Any + Send>>)| match answer {
            Ok(answer) => answers[number].1 = Some(answer),
            Err(panic) => resume_unwind(panic),
        };
        loop {
            match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(answer) => take(answer),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    for (subject, call) in waiting.iter().flatten() {
                        let mut progress = call.progress();
                        if *progress == Progress::Running {
                            *progress = Progress::Left;
                            self.left.insert(*subject, call.clone());
                        }
                    }
                    // Take answers received just before the deadline.
                    receiver.try_iter().for_each(&mut take);
                    break;
                }
            }
        }
        answers
    }

    /// The answer to one question; `None` if none came in time.
    pub(super) fn ask_one<T: Send + 'static>(
        &mut self,
        subject: Subject,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.ask(vec![(subject, Box::new(question) as Question<T>)]).pop().and_then(|(_, answer)| answer)
    }
}

impl Call {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_hangs_has_one_thread_and_holds_up_nothing_else() {
        // Long enough for a thread to answer on a machine busy with other things.
        let mut readers = Readers::new(Duration::from_secs(2));
        let card = |bus| Subject::Card(PciBusId::new(0, bus, 0, 0).unwrap());
        let (release, released) = mpsc::channel::<()>();
        let hangs: Question<u32> = Box::new(move || {
            let _ = released.recv();
            1
        });
        let answers = readers.ask(vec![(card(1), hangs), (card(2), Box::new(|| 2))]);
        assert_eq!(answers, [(card(1), None), (card(2), Some(2))]);
        let again: Question<u32> = Box::new(|| panic!("it is asked though it hangs"));
        readers.deadline = Duration::from_secs(60);
        let since = Instant::now();
        assert_eq!(readers.ask(vec![(card(1), again)]), [(card(1), None)]);
        assert!(since.elapsed() < readers.deadline, "what is known to hang is not waited for");
        assert_eq!(readers.hanging().collect::<Vec<_>>(), [card(1)]);

        release.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(60), readers.returned.notified()).await.unwrap();
        assert_eq!(readers.ask_one(card(1), || 3), Some(3), "it is asked again when it has returned");
        assert_eq!(readers.hanging().count(), 0);
    }

    #[test]
    #[should_panic(expected = "on purpose")]
    fn a_panic_is_not_taken_for_silence() {
        Readers::new(Duration::from_secs(60)).ask_one(Subject::Driver, || panic!("on purpose"));
    }
}
