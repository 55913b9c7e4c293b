//! Switches the MIG mode of a card.

use tessera_api::PciBusId;
use tessera_card::{Pending, Switched, clients, switch_mig_mode};

use super::{Tools, on_or_off};
use crate::prepare::PrepareError;

/// Switches a card's mode. Fails if impossible at once.
pub(super) fn switch_mode(
    tools: &Tools,
    card: PciBusId,
    uuid: &str,
    device: &str,
    to: bool,
) -> Result<(), PrepareError> {
    let (device, uuid) = (device.to_owned(), uuid.to_owned());
    match switch_mig_mode(&*tools.nvml, card, to, Pending::TakeBack) {
        Ok(Switched::Now) => Ok(()),
        Ok(Switched::WithReset | Switched::Not) => {
            Err(PrepareError::ResetNeeded { device, uuid, to: on_or_off(to) })
        }
        Err(error) if error.is_in_use() => {
            let clients = clients(&*tools.nvml, &tools.proc, card, None).to_string();
            Err(PrepareError::CardBusy { device, uuid, to: on_or_off(to), clients })
        }
        Err(source) => Err(PrepareError::Hardware { device, source }),
    }
}
