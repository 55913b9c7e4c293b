//! Running work, by claim.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::call::Ending;
use crate::prepare::{Operation, PrepareError, PreparedDevice};

/// Result of one piece of work; without devices for Unprepare.
pub(in crate::prepare) type Answer = Result<Vec<PreparedDevice>, PrepareError>;

/// An answer for any number of waiting calls. The work goes on even without one.
pub(in crate::prepare) type Pending = Shared<BoxFuture<'static, Answer>>;

/// Running work, by claim: one piece at a time, each in a task of its own, so a call given up by the kubelet cancels nothing. A
/// call for running work joins the work.
#[derive(Default)]
pub(in crate::prepare) struct Work {
    latest: Arc<Mutex<HashMap<String, Latest>>>,
    tasks: TaskTracker,
    number: AtomicU64,
    is_draining: AtomicBool,
    stopping: CancellationToken,
}

/// A claim's last piece of work in the queue.
struct Latest {
    number: u64,
    operation: Operation,
    answer: Pending,
    overtaken: CancellationToken,
}

/// Removes a finished piece of work from the list, also after a panic.
struct Listed {
    latest: Arc<Mutex<HashMap<String, Latest>>>,
    uid: String,
    number: u64,
}

impl Work {
    /// Joins the claim's latest work if of the same operation, else starts `make` after the latest work. An Unprepare cancels a
    /// waiting Prepare.
    pub fn join_or_start<F, W>(&self, uid: &str, operation: Operation, make: F) -> Pending
    where
        F: FnOnce(Ending) -> W,
        W: Future<Output = Answer> + Send + 'static,
    {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let before = latest.get(uid);
        if let Some(before) = before.filter(|before| before.operation == operation) {
            return before.answer.clone();
        }
        if self.is_draining.load(Ordering::Relaxed) {
            return std::future::ready(Err(PrepareError::Stopping)).boxed().shared();
        }
        if let Some(before) = before.filter(|before| before.operation == Operation::Prepare) {
            before.overtaken.cancel();
        }
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let listed = Listed { latest: self.latest.clone(), uid: uid.to_owned(), number };
        let before = before.map(|before| before.answer.clone());
        let ending = Ending { stopping: self.stopping.clone(), overtaken: CancellationToken::new() };
        let overtaken = ending.overtaken.clone();
        let work = make(ending);
        let task = self.tasks.spawn(async move {
            // Dropped before the answer is sent, so a call after the answer starts anew.
            let _listed = listed;
            if let Some(before) = before {
                // Only the end of the earlier work matters, not its result.
                let _ = before.await;
            }
            work.await
        });
        let answer = task
            .map(|ended| ended.unwrap_or_else(|error| Err(PrepareError::Panic(error.to_string().into()))))
            .boxed()
            .shared();
        latest.insert(uid.to_owned(), Latest { number, operation, answer: answer.clone(), overtaken });
        answer
    }

    /// Takes no new work, cancels waiting work, and returns when running work has ended, or after `longest` with the number of
    /// tasks still running.
    pub async fn drain(&self, longest: Duration) -> Result<(), usize> {
        self.is_draining.store(true, Ordering::Relaxed);
        self.stopping.cancel();
        self.tasks.close();
        tokio::time::timeout(longest, self.tasks.wait()).await.map_err(|_| self.tasks.len())
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.get(&self.uid).is_some_and(|latest| latest.number == self.number) {
            latest.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Notify;

    use super::*;

    fn device(name: &str) -> PreparedDevice {
        PreparedDevice {
            request_names: vec![],
            pool_name: String::new(),
            device_name: name.into(),
            cdi_device_ids: vec![],
            share_id: None,
        }
    }

    #[tokio::test]
    async fn a_retry_joins_and_a_dropped_call_cancels_nothing() {
        let work = Work::default();
        let started = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(Notify::new());
        let call = || {
            work.join_or_start("u", Operation::Prepare, |_| {
                let (started, gate) = (started.clone(), gate.clone());
                async move {
                    started.fetch_add(1, Ordering::Relaxed);
                    gate.notified().await;
                    Ok(vec![device("a")])
                }
            })
        };
        drop(call());
        let retry = call();
        tokio::task::yield_now().await;
        gate.notify_one();
        assert_eq!(retry.await.unwrap(), [device("a")]);
        assert_eq!(started.load(Ordering::Relaxed), 1);

        // A later call does not join finished work.
        gate.notify_one();
        call().await.unwrap();
        assert_eq!(started.load(Ordering::Relaxed), 2);
        assert!(work.latest.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn unprepare_waits_for_prepare() {
        let work = Work::default();
        let gate = Arc::new(Notify::new());
        let order = Arc::new(Mutex::new(Vec::new()));
        let prepare = work.join_or_start("u", Operation::Prepare, |_| {
            let (order, gate) = (order.clone(), gate.clone());
            async move {
                gate.notified().await;
                order.lock().unwrap().push("prepare");
                Ok(vec![])
            }
        });
        let unprepare = work.join_or_start("u", Operation::Unprepare, |_| {
            let order = order.clone();
            async move {
                order.lock().unwrap().push("unprepare");
                Ok(vec![])
            }
        });
        tokio::task::yield_now().await;
        gate.notify_one();
        unprepare.await.unwrap();
        prepare.await.unwrap();
        assert_eq!(*order.lock().unwrap(), ["prepare", "unprepare"]);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_its_claim_and_leaves_nothing_behind() {
        let work = Work::default();
        let panic = work.join_or_start("u", Operation::Prepare, |_| async { panic!("on purpose") });
        assert!(matches!(panic.await, Err(PrepareError::Panic(_))));
        assert!(work.latest.lock().unwrap().is_empty());
        work.join_or_start("u", Operation::Prepare, |_| async { Ok(vec![]) }).await.unwrap();
    }

    #[tokio::test]
    async fn draining_waits_and_takes_nothing_new() {
        let work = Arc::new(Work::default());
        let gate = Arc::new(Notify::new());
        let running = work.join_or_start("u", Operation::Prepare, |_| {
            let gate = gate.clone();
            async move {
                gate.notified().await;
                Ok(vec![])
            }
        });
        let drain = tokio::spawn({
            let work = work.clone();
            async move { work.drain(Duration::from_secs(60)).await }
        });
        tokio::task::yield_now().await;
        let new = work.join_or_start("v", Operation::Prepare, |_| async { Ok(vec![]) });
        assert!(matches!(new.await, Err(PrepareError::Stopping)));
        assert!(!drain.is_finished());
        gate.notify_one();
        drain.await.unwrap().unwrap();
        running.await.unwrap();
    }

    #[tokio::test]
    async fn unprepare_ends_a_prepare_that_waits_and_drain_ends_all() {
        let work = Work::default();
        let wait = |uid: &str| {
            work.join_or_start(uid, Operation::Prepare, |ending| async move { Err(ending.asked().await) })
        };
        let (overtaken, stopped) = (wait("u"), wait("v"));
        let unprepare = work.join_or_start("u", Operation::Unprepare, |_| async { Ok(vec![]) });
        assert!(matches!(overtaken.await, Err(PrepareError::Overtaken)));
        unprepare.await.unwrap();
        work.drain(Duration::from_secs(60)).await.unwrap();
        assert!(matches!(stopped.await, Err(PrepareError::Stopping)));
    }

    #[tokio::test]
    async fn draining_does_not_wait_for_ever() {
        let work = Work::default();
        let hangs = work.join_or_start("u", Operation::Prepare, |_| std::future::pending());
        assert_eq!(work.drain(Duration::from_millis(20)).await, Err(1));
        drop(hangs);
    }
}
