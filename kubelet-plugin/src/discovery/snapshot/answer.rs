//! The answer of one card in a look.

use tessera_api::PciBusId;
use tessera_api::facts::GpuInstance;
use tessera_inventory::machine::Card;
use tessera_nvml::NvmlError;

use crate::discovery::facts::{self, Sources};
use crate::discovery::faults;
use crate::discovery::problem::Problems;
use crate::discovery::resets::Counted;

/// One card's answer.
pub(super) struct Answer {
    pub(super) card: Option<Card>,
    /// Its GPU instances, where they were asked for.
    pub(super) instances: Option<Vec<GpuInstance>>,
    pub(super) gone: bool,
    pub(super) counted: Counted,
    pub(super) problems: Problems,
}

/// Reads one card; its GPU instances too, if they are wanted.
pub(super) fn read_card(
    sources: &Sources,
    pci: PciBusId,
    known: Option<Card>,
    with_instances: bool,
) -> Answer {
    let mut problems = Problems::default();
    let (gone, mut card) = match sources.nvml.card(pci) {
        Ok(read) if is_gone(&read) => (true, None),
        Ok(read) => (false, facts::card(pci, read, sources, known.as_ref(), &mut problems)),
        Err(error) if error.is_card_gone() => (true, None),
        Err(error) => {
            problems.add(Some(pci), "card", error);
            (false, known)
        }
    };
    let counted = card.as_mut().map(|card| {
        let counted = faults::read(card, sources.nvml.health(pci), &mut problems);
        faults::read_own(card, sources.own.as_deref(), &mut problems);
        counted
    });
    let counted = counted.unwrap_or_default();
    let instances = with_instances.then(|| sources.nvml.gpu_instances(pci).ok()).flatten();
    Answer { card, instances, gone, counted, problems }
}

/// Whether the card fell off the bus during the reading: from there on, every value is an error.
fn is_gone(card: &tessera_nvml::CardReadings) -> bool {
    let gone = |error: Option<&NvmlError>| error.is_some_and(NvmlError::is_card_gone);
    gone(card.uuid.as_ref().err()) || gone(card.memory.as_ref().err()) || gone(card.fabric.as_ref().err())
}
