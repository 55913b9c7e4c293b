//! The changing part of an emulated machine: faults, lost cards, processes, readings set by a tester, events.
//!
//! Every process of a machine uses one state: a file replaced as a whole, under a lock, outliving
//! all processes. A shared counter is raised at every change, so checking for changes is cheap.

pub mod fault;
pub mod generation;
pub mod health;
pub mod meter;
pub mod mig;
pub mod store;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::fault::{Fault, FaultEffect, Moment};
pub use self::health::{CardHealth, FabricState};
pub use self::meter::Meter;
pub use self::mig::Mig;
pub use self::store::{Store, StoreError};

/// Events kept for processes yet to fetch them. A waiting process fetches them at once. A
/// process that never fetches must not make the state grow.
const EVENTS_KEPT: usize = 256;

/// The changing part of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// One per card, by index.
    pub cards: Vec<CardState>,
    /// Faults and delays, in the order of their addition.
    pub faults: Vec<Fault>,
    /// Number of the next fault.
    pub next_fault: u64,
    /// The last events, oldest first.
    pub events: Vec<Event>,
    /// Number of the next event.
    pub next_event: u64,
    /// How often another driver was installed while the machine ran.
    pub driver_installations: u64,
    /// Whether its cards are in confidential computing mode.
    #[serde(skip_serializing_if = "ConfCompute::is_off")]
    pub conf_compute: ConfCompute,
    /// Processes to be removed with their owner, by the owner's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub contexts: BTreeMap<String, Vec<Context>>,
}

/// Confidential computing, which all cards of a machine are in or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum ConfCompute {
    /// The cards are not in that mode.
    #[default]
    Off,
    /// They are, and accept no work.
    NotReady,
    /// They are, and accept work.
    Ready,
}

impl ConfCompute {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
    fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

/// A process on a card, removed with its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Context {
    /// Index of the card.
    pub card: usize,
    /// Process id.
    pub pid: u32,
    /// NVML's list for the process.
    pub kind: ProcessKind,
}

/// The changing part of one card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CardState {
    /// Whether the card has fallen off the bus.
    pub lost: bool,
    /// Whether its slot is empty.
    pub unplugged: bool,
    /// How often a card was put into its slot while the machine ran.
    pub insertions: u64,
    /// `nvmlComputeMode_t`.
    pub compute_mode: u32,
    /// How long a process computes before the next one's turn: 0 (default), 1 (short), 2 (medium), 3 (long).
    pub time_slice: u32,
    /// Whether the driver keeps the card initialised with no client.
    pub persistence_mode: bool,
    /// Percent of time with a running kernel, as set by a tester; see [`CardState::busy_percent`].
    pub utilization_gpu: u32,
    /// Percent of time with memory reads or writes.
    pub utilization_memory: u32,
    /// Processes on the card.
    pub processes: Vec<Process>,
    /// Power limit, mW, if set.
    pub power_limit_milliwatts: Option<u32>,
    /// Power draw in place of an idle card's, mW.
    pub power_usage_milliwatts: Option<u32>,
    /// Temperature in place of an idle card's, °C.
    pub temperature_celsius: Option<u32>,
    /// MIG mode and partitions.
    pub mig: Mig,
    /// Inactive NVLinks.
    pub links_down: Vec<u32>,
    /// Faults reported by its driver.
    #[serde(skip_serializing_if = "CardHealth::is_healthy")]
    pub health: CardHealth,
    /// Counters.
    #[serde(skip_serializing_if = "Meter::is_unused")]
    pub meter: Meter,
}

impl CardState {
    /// Percent of time with a running kernel: the value set by a tester, or the sum of its processes' values if
    /// greater.
    pub fn busy_percent(&self) -> u32 {
        let processes = self.processes.iter().map(|process| process.busy_percent);
        processes.fold(0, u32::saturating_add).min(100).max(self.utilization_gpu)
    }

    /// The same for each GPU instance with a process, by id.
    pub fn busy_instances(&self) -> BTreeMap<u32, u32> {
        let mut busy = BTreeMap::<u32, u32>::new();
        for process in &self.processes {
            let Some(instance) = process.gpu_instance else { continue };
            let percent = busy.entry(instance).or_default();
            *percent = percent.saturating_add(process.busy_percent).min(100);
        }
        busy
    }
}

/// A process on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Held frame buffer, bytes.
    pub used_memory_bytes: u64,
    /// NVML's list for the process.
    pub kind: ProcessKind,
    /// Id of the process's GPU instance, if on one.
    #[serde(default)]
    pub gpu_instance: Option<u32>,
    /// Id of the compute instance in the GPU instance.
    #[serde(default)]
    pub compute_instance: Option<u32>,
    /// Percent of time with running kernels, 0 to 100.
    #[serde(default)]
    pub busy_percent: u32,
    /// Number of its owner, 0 for none. The process id alone is ambiguous: in containers most programs have the id 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub owner: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Process {
    /// A process on a card, outside of partitions.
    pub fn new(pid: u32, used_memory_bytes: u64, kind: ProcessKind) -> Self {
        Process {
            pid,
            used_memory_bytes,
            kind,
            gpu_instance: None,
            compute_instance: None,
            busy_percent: 0,
            owner: 0,
        }
    }
}

/// Which of NVML's lists a process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum ProcessKind {
    /// A compute context of its own.
    Compute,
    /// A graphics context.
    Graphics,
    /// A client of an MPS daemon.
    Mps,
}

/// An event of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Counts up over the machine's whole life.
    pub number: u64,
    /// Index of the card.
    pub card: u32,
    /// One bit of `nvmlEventType*`.
    pub event_type: u64,
    /// For an XID event its number, else 0.
    pub data: u64,
    /// Id of the event's GPU instance, if any.
    #[serde(default)]
    pub gpu_instance: Option<u32>,
}

/// `nvmlEventTypeXidCriticalError`.
pub const EVENT_XID_CRITICAL_ERROR: u64 = 0x8;

impl State {
    /// The state of a new machine.
    pub fn new(cards: usize) -> Self {
        State { cards: vec![CardState::default(); cards], ..State::default() }
    }

    /// Adds an event, and removes the oldest if there are too many.
    pub fn push_event(&mut self, card: u32, event_type: u64, data: u64, gpu_instance: Option<u32>) {
        self.events.push(Event { number: self.next_event, card, event_type, data, gpu_instance });
        self.next_event += 1;
        if self.events.len() > EVENTS_KEPT {
            self.events.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_nobody_fetches_do_not_pile_up() {
        let mut state = State::new(1);
        for number in 0..10 * EVENTS_KEPT as u64 {
            state.push_event(0, EVENT_XID_CRITICAL_ERROR, number, None);
        }
        assert_eq!(state.events.len(), EVENTS_KEPT);
        assert_eq!(state.events.last().map(|event| event.number), Some(10 * EVENTS_KEPT as u64 - 1));
    }
}
