//! Keeps claims from a card before a change of its static layout or a reset.

use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_api::{DeviceName, PciBusId};

use super::Preparer;
use crate::layout::{CardHold, CardHolder};
use crate::prepare::PrepareError;
use crate::prepare::cards::{Holder, Left, Use, all_holders};
use tessera_card::CardLocks;
use tessera_journal::Journal;
use tessera_kube_util::error_text::with_causes;

/// The holder named in place of an ended claim whose partition stays on the card.
const NOT_RELEASED: &str =
    "that has ended, whose partition the driver does not let go (a monitor, as DCGM, has it open)";

/// Keeps claims from a card: none is prepared or unprepared on the card until the guard is dropped.
pub struct CardGuard {
    _locks: CardLocks,
}

impl CardHolder for Preparer {
    type Guard = CardGuard;

    async fn hold(&self, card: PciBusId) -> Result<CardHold<CardGuard>, String> {
        self.hold_card(card).await.map_err(|error| with_causes(&error))
    }

    fn journal(&self) -> Arc<Journal> {
        Preparer::journal(self).clone()
    }
}

impl Preparer {
    async fn hold_card(&self, card: PciBusId) -> Result<CardHold<CardGuard>, PrepareError> {
        let worker = &self.worker;
        let locks = Arc::new(worker.locks.cards(&BTreeSet::from([card])).await?);
        let left = worker.unmake_waste(card, &locks).await?;
        let holders = worker.disk(all_holders).await?;
        let device = DeviceName::Card(card).to_string();
        let uses_it = |holder: &&Holder| holder.conflicts_with(Use::of_whole_card(card, &device));
        let mut claims: Vec<String> = holders.iter().filter(uses_it).map(ToString::to_string).collect();
        if left == Left::Held {
            claims.push(NOT_RELEASED.to_owned());
        }
        Ok(CardHold { claims, guard: CardGuard { _locks: locks } })
    }
}
