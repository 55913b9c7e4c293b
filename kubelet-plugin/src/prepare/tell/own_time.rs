//! Measures the plugin's own part of the time spent on a claim.

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::prepare::{HardwareWork, Operation, Phase, PrepareObserver};

tokio::task_local! {
    /// Time spent on others so far by work on this task's claim; `None` after a wait.
    static WITH_OTHERS: Cell<Option<Duration>>;
}

/// Also reports to an observer the plugin's own part of the work on a claim: without locks, the API server, the driver and the
/// disk. Work delayed by an obstacle is not reported, since its time measures nothing.
pub(in crate::prepare) struct OwnTime {
    observer: Arc<dyn PrepareObserver>,
}

impl OwnTime {
    pub fn new(observer: Arc<dyn PrepareObserver>) -> Self {
        Self { observer }
    }

    /// Measures work on one claim, whose phases must run in this task.
    pub fn count<F: Future>(work: F) -> impl Future<Output = F::Output> {
        WITH_OTHERS.scope(Cell::new(Some(Duration::ZERO)), work)
    }
}

impl PrepareObserver for OwnTime {
    fn phase(&self, operation: Operation, phase: Phase, succeeded: bool, elapsed: Duration) {
        // Outside a claim's work, as at a start, there is nothing to measure.
        let _ = WITH_OTHERS.try_with(|others| match phase {
            Phase::Lock | Phase::Claim | Phase::Hardware | Phase::DriverFiles | Phase::Sync => {
                others.set(others.get().map(|others| others + elapsed));
            }
            Phase::Wait => others.set(None),
            Phase::Journal | Phase::Cdi => {}
        });
        self.observer.phase(operation, phase, succeeded, elapsed);
    }

    fn waiting(&self, reason: &'static str, begins: bool) {
        self.observer.waiting(reason, begins);
    }

    fn claim(&self, operation: Operation, outcome: &'static str, elapsed: Duration) {
        if let Ok(Some(others)) = WITH_OTHERS.try_with(Cell::get) {
            self.observer.own(operation, elapsed.saturating_sub(others));
        }
        self.observer.claim(operation, outcome, elapsed);
    }

    fn hardware(&self, work: HardwareWork, outcome: &'static str, elapsed: Duration) {
        self.observer.hardware(work, outcome, elapsed);
    }

    fn own(&self, operation: Operation, elapsed: Duration) {
        self.observer.own(operation, elapsed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Told(Mutex<Vec<Duration>>);

    impl PrepareObserver for Told {
        fn phase(&self, _: Operation, _: Phase, _: bool, _: Duration) {}

        fn waiting(&self, _: &'static str, _: bool) {}

        fn claim(&self, _: Operation, _: &'static str, _: Duration) {}

        fn own(&self, _: Operation, elapsed: Duration) {
            self.0.lock().unwrap().push(elapsed);
        }
    }

    #[tokio::test]
    async fn what_others_take_is_not_own() {
        let told = Arc::new(Told::default());
        let own = OwnTime::new(told.clone());
        let work = async |phases: &[(Phase, u64)]| {
            for (phase, elapsed) in phases {
                own.phase(Operation::Prepare, *phase, true, Duration::from_millis(*elapsed));
            }
            own.claim(Operation::Prepare, "success", Duration::from_millis(100));
        };
        let phases = [(Phase::Claim, 20), (Phase::Sync, 30), (Phase::Journal, 5), (Phase::Hardware, 10)];
        OwnTime::count(work(&phases)).await;
        OwnTime::count(work(&[(Phase::Cdi, 7)])).await;
        OwnTime::count(work(&[(Phase::Claim, 20), (Phase::Wait, 90), (Phase::Sync, 1)])).await;
        work(&phases).await;
        assert_eq!(*told.0.lock().unwrap(), [40, 100].map(Duration::from_millis));
    }
}
