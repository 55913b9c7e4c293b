//! What changes while an emulated machine runs: faults, lost cards, processes, readings that were set, events.
//!
//! Every process of a machine sees one state. It is a file that is replaced as a whole, under a lock, and outlives
//! all processes. A shared counter tells readers whether it changed, so that reading it again is cheap.

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

/// Events that are kept for processes that have not fetched them yet. A waiting process fetches them at once; a
/// process that never does must not make the state grow.
const EVENTS_KEPT: usize = 256;

/// Everything about a machine that changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// One per card, by index.
    pub cards: Vec<CardState>,
    /// Faults and delays, in the order in which they were added.
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
    /// Processes that are removed with their owner, by the owner's name.
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

/// A process on a card that is removed with its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Context {
    /// Index of the card.
    pub card: usize,
    /// Process id.
    pub pid: u32,
    /// Which list it is in.
    pub kind: ProcessKind,
}

/// What changes about one card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CardState {
    /// Whether it has fallen off the bus.
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
    /// Percent of time in which a kernel ran, as set by a tester; see [`CardState::busy_percent`].
    pub utilization_gpu: u32,
    /// Percent of time in which memory was read or written.
    pub utilization_memory: u32,
    /// Processes on the card.
    pub processes: Vec<Process>,
    /// Power limit that was set, mW.
    pub power_limit_milliwatts: Option<u32>,
    /// Power draw in place of an idle card's, mW.
    pub power_usage_milliwatts: Option<u32>,
    /// Temperature in place of an idle card's, °C.
    pub temperature_celsius: Option<u32>,
    /// MIG mode and partitions.
    pub mig: Mig,
    /// NVLinks that are down.
    pub links_down: Vec<u32>,
    /// What its driver says is wrong with it.
    #[serde(skip_serializing_if = "CardHealth::is_healthy")]
    pub health: CardHealth,
    /// What it has done so far.
    #[serde(skip_serializing_if = "Meter::is_unused")]
    pub meter: Meter,
}

impl CardState {
    /// Percent of time in which a kernel runs: the value set by a tester, or the sum of its processes' values if that
    /// is more.
    pub fn busy_percent(&self) -> u32 {
        let processes = self.processes.iter().map(|process| process.busy_percent);
        processes.fold(0, u32::saturating_add).min(100).max(self.utilization_gpu)
    }

    /// The same of each GPU instance on which a process is, by its id.
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

/// A process that uses a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Frame buffer it holds, bytes.
    pub used_memory_bytes: u64,
    /// Which list it is in.
    pub kind: ProcessKind,
    /// Id of the GPU instance that it runs on, where it runs on one.
    #[serde(default)]
    pub gpu_instance: Option<u32>,
    /// Id of the compute instance in that.
    #[serde(default)]
    pub compute_instance: Option<u32>,
    /// Percent of time in which its kernels run, 0 to 100.
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
    /// A process on a card, on no partition of it.
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

/// Something that happened to a card.
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
    /// Id of the GPU instance that it happened in.
    #[serde(default)]
    pub gpu_instance: Option<u32>,
}

/// `nvmlEventTypeXidCriticalError`.
pub const EVENT_XID_CRITICAL_ERROR: u64 = 0x8;

impl State {
    /// The state of a machine that was just made.
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
