//! Compute modes and processes of a daemon's card.

use std::sync::Arc;

use tessera_api::PciBusId;
use tessera_nvml::{ComputeMode, DriverRoot, Library, Nvml, ProcessKind};

use super::error::MpsError;
use tessera_nvml::DriverCalls;

/// The card of a daemon in the driver. The library is open only during a call: an open library keeps the driver from
/// resetting cards and from switching their MIG mode.
#[derive(Clone, Debug)]
pub(super) struct DriverCard {
    pub driver_root: DriverRoot,
    pub card: PciBusId,
    pub calls: Arc<DriverCalls>,
}

/// Modes, ordered by their numbers in `nvml.h`, as used by records.
const MODES: [ComputeMode; 4] = [
    ComputeMode::Default,
    ComputeMode::ExclusiveThread,
    ComputeMode::Prohibited,
    ComputeMode::ExclusiveProcess,
];

/// Number of [`ComputeMode::Prohibited`].
pub(super) const PROHIBITED: u32 = 2;

/// Number of [`ComputeMode::ExclusiveProcess`].
pub(super) const EXCLUSIVE_PROCESS: u32 = 3;

/// The number of a mode.
pub(super) fn number(mode: ComputeMode) -> Option<u32> {
    MODES.iter().position(|other| *other == mode).and_then(|number| u32::try_from(number).ok())
}

/// The mode with a number; the default mode if there is none.
pub(super) fn mode(number: u32) -> ComputeMode {
    MODES.get(number as usize).copied().unwrap_or(ComputeMode::Default)
}

/// The mode to set on a card after the end of its daemon, if any. A mode set since by somebody else is kept.
/// `before` is the mode before MPS, `closed` whether the card was closed for a time without the daemon.
pub(super) fn mode_after(before: Option<u32>, closed: bool, now: u32) -> Option<u32> {
    before.filter(|_| now == EXCLUSIVE_PROCESS || (closed && now == PROHIBITED))
}

impl DriverCard {
    /// The number of the card's compute mode.
    pub async fn compute_mode(&self) -> Result<u32, MpsError> {
        let mode = self.ask(|nvml, card| nvml.card(card)?.compute_mode).await?;
        // A card without a reported mode has none to set either.
        Ok(mode.and_then(number).unwrap_or(EXCLUSIVE_PROCESS))
    }

    /// Sets the card's compute mode.
    pub async fn set_compute_mode(&self, number: u32) -> Result<(), MpsError> {
        self.ask(move |nvml, card| nvml.set_compute_mode(card, mode(number))).await
    }

    /// Processes with a context on the card, including MPS servers.
    pub async fn holders(&self) -> Result<Vec<u32>, MpsError> {
        self.processes(ProcessKind::Compute).await
    }

    /// Clients of MPS servers on the card.
    pub async fn clients(&self) -> Result<Vec<u32>, MpsError> {
        self.processes(ProcessKind::Mps).await
    }

    async fn processes(&self, kind: ProcessKind) -> Result<Vec<u32>, MpsError> {
        let processes = self.ask(|nvml, card| nvml.processes(card)).await?.unwrap_or_default();
        let mut pids: Vec<u32> =
            processes.iter().filter(|process| process.kind == kind).map(|process| process.pid).collect();
        pids.dedup();
        Ok(pids)
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Library, PciBusId) -> Result<T, tessera_nvml::NvmlError> + Send + 'static,
    ) -> Result<T, MpsError> {
        let (root, card) = (self.driver_root.clone(), self.card);
        let ask = move || {
            let library = open(&root)?;
            question(&library, card).map_err(|error| MpsError::Driver(format!("card {card}: {error}")))
        };
        self.calls.ask(card, ask).await.map_err(|error| MpsError::Driver(error.to_string()))?
    }
}

fn open(root: &DriverRoot) -> Result<Library, MpsError> {
    root.find_library()
        .and_then(|path| Library::open(&path))
        .map_err(|error| MpsError::Driver(error.to_string()))
}
