//! Readiness condition: blocking calls still find a free thread.

use std::time::Duration;

use tokio::{sync::Mutex, task::JoinHandle, time::timeout};

use super::readiness::Condition;

/// How long to wait for a free thread. Probes of Kubernetes wait 1 s by default.
const PATIENCE: Duration = Duration::from_millis(500);

/// Checks for a free thread for blocking calls. If a disk hangs, its calls may have taken all threads, and no
/// claim can be prepared or unprepared any more.
#[derive(Debug, Default)]
pub struct FreeThreads {
    /// The one pending check, for all queries of the condition.
    waiting: Mutex<Option<JoinHandle<()>>>,
}

impl FreeThreads {
    /// Runs the check.
    pub async fn condition(&self) -> Condition {
        let mut waiting = self.waiting.lock().await;
        let work = waiting.get_or_insert_with(|| tokio::task::spawn_blocking(|| ()));
        let is_free = timeout(PATIENCE, work).await.is_ok();
        if is_free {
            *waiting = None;
        }
        let missing = "all are taken by calls that do not return: a disk or the driver hangs; see the node's kernel log";
        Condition {
            name: "threads for calls that block",
            missing: (!is_free).then(|| missing.to_owned()),
            note: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_is_used_up_is_noticed_and_its_recovery_too() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).max_blocking_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let threads = FreeThreads::default();
            assert_eq!(threads.condition().await.missing, None);
            let (release, hang) = std::sync::mpsc::channel::<()>();
            let hung = tokio::task::spawn_blocking(move || hang.recv().is_err());
            for _ in 0..2 {
                assert!(threads.condition().await.missing.is_some());
            }
            drop(release);
            hung.await.unwrap();
            assert_eq!(threads.condition().await.missing, None);
        });
    }
}
