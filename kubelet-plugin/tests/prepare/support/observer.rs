//! An observer that records its notifications.

use std::sync::Mutex;
use std::time::Duration;

use tessera_kubelet_plugin::prepare::{HardwareWork, Operation, Phase, PrepareObserver};

/// Records its notifications.
#[derive(Default)]
pub struct Seen {
    phases: Mutex<Vec<(Phase, bool, Duration)>>,
    claims: Mutex<Vec<(Operation, &'static str, Duration)>>,
    waiting: Mutex<Vec<(&'static str, bool)>>,
    hardware: Mutex<Vec<(HardwareWork, &'static str)>>,
}

impl Seen {
    pub fn phases(&self) -> Vec<(Phase, bool)> {
        self.phases.lock().unwrap().iter().map(|(phase, succeeded, _)| (*phase, *succeeded)).collect()
    }

    /// Begins and ends of waits.
    pub fn waiting(&self) -> Vec<(&'static str, bool)> {
        self.waiting.lock().unwrap().clone()
    }

    /// Outcomes of changes of cards, in order.
    pub fn hardware(&self, work: HardwareWork) -> Vec<&'static str> {
        let hardware = self.hardware.lock().unwrap();
        hardware.iter().filter(|(its, _)| *its == work).map(|(_, outcome)| *outcome).collect()
    }

    pub fn claims(&self) -> Vec<(Operation, &'static str)> {
        self.claims.lock().unwrap().iter().map(|(operation, outcome, _)| (*operation, *outcome)).collect()
    }
}

impl PrepareObserver for Seen {
    fn phase(&self, _: Operation, phase: Phase, succeeded: bool, elapsed: Duration) {
        self.phases.lock().unwrap().push((phase, succeeded, elapsed));
    }

    fn hardware(&self, work: HardwareWork, outcome: &'static str, _: Duration) {
        self.hardware.lock().unwrap().push((work, outcome));
    }

    fn waiting(&self, reason: &'static str, begins: bool) {
        self.waiting.lock().unwrap().push((reason, begins));
    }

    fn claim(&self, operation: Operation, outcome: &'static str, elapsed: Duration) {
        self.claims.lock().unwrap().push((operation, outcome, elapsed));
    }
}
