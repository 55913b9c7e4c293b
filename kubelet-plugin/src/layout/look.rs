//! Reads the state of a card.

use std::collections::BTreeSet;

use tessera_api::PciBusId;
use tessera_nvml::{Architecture, GpuInstance, MigMode, Nvml, NvmlError};

/// State of a card at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) uuid: String,
    pub(super) mode: MigMode,
    /// Whether the card needs a reset to switch the mode.
    pub(super) switch_needs_reset: bool,
    pub(super) instances: Vec<GpuInstance>,
    /// Process ids of the programs using the card.
    pub(super) clients: BTreeSet<u32>,
}

/// Reads a card. Blocks on driver calls. `None` for a card without MIG.
pub(super) fn look(nvml: &dyn Nvml, card: PciBusId) -> Result<Option<Seen>, NvmlError> {
    let read = nvml.card(card)?;
    let Some(mode) = read.mig? else { return Ok(None) };
    let processes = nvml.processes(card)?.unwrap_or_default();
    Ok(Some(Seen {
        uuid: read.uuid?,
        mode,
        switch_needs_reset: read.architecture?.is_none_or(|chip| chip < Architecture::HOPPER),
        instances: if mode.current { nvml.gpu_instances(card)? } else { Vec::new() },
        clients: processes.into_iter().map(|process| process.pid).collect(),
    }))
}
