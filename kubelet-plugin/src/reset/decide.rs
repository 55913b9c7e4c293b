//! Whether a card is reset, and when again.

use std::time::Duration;

use tessera_api::health::{HealthPolicy, Recovery};
use tessera_inventory::machine::Card;
use tokio::time::Instant;

/// Pauses after the first two attempts at a card. After the third, an administrator has to look at the card.
const PAUSES: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(600)];

/// Time after the last attempt at a card when its attempts no longer count, if the card needs no reset.
const COUNTED_FOR: Duration = Duration::from_secs(3600);

/// The attempts to reset a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    count: usize,
    last: Option<Instant>,
}

/// Whether a reset helps a card: one of its faults keeps claims away and ends with a reset, and none needs more. A card without an
/// answer is not reset: a hanging call has the card open.
#[must_use]
pub fn helps(card: &Card, policy: &HealthPolicy) -> bool {
    let faults = card.all_faults().filter(|fault| policy.effect(fault).taint_effect().is_some());
    let recoveries: Vec<Recovery> = faults.map(|fault| fault.recovery).collect();
    let is_reset = |recovery: &Recovery| matches!(recovery, Recovery::Reset | Recovery::DrainAndReset);
    let passes = |recovery: &Recovery| matches!(recovery, Recovery::None | Recovery::RestartMonitors);
    card.health.answers()
        && recoveries.iter().any(is_reset)
        && recoveries.iter().all(|recovery| is_reset(recovery) || passes(recovery))
}

impl Attempts {
    /// Records an attempt.
    pub(super) fn add(&mut self, now: Instant) {
        *self = Self { count: self.count + 1, last: Some(now) };
    }

    /// Whether the pause before the next attempt is over.
    pub(super) fn may_try(&self, now: Instant) -> bool {
        match (self.last, self.pause()) {
            (None, _) => true,
            (Some(last), Some(pause)) => now.duration_since(last) >= pause,
            (Some(_), None) => false,
        }
    }

    /// The pause before the next attempt; `None` if there will be none.
    pub(super) fn pause(&self) -> Option<Duration> {
        PAUSES.get(self.count.saturating_sub(1)).copied()
    }

    /// Whether attempts at a card with no need of a reset are to be forgotten.
    pub(super) fn are_over(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now.duration_since(last) > COUNTED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use tessera_api::health::{HealthClass, HealthEffect, HealthFault};
    use tessera_inventory::machine::Health;

    use super::*;

    fn card(faults: &[HealthFault], recommended: Option<Recovery>) -> Card {
        let mut card = Card::new("0000:3b:00.0".parse().unwrap());
        card.recovery = recommended;
        card.faults = faults.iter().map(|fault| fault.clone().with_recommendation(recommended)).collect();
        card
    }

    #[test]
    fn only_a_card_that_a_reset_helps_is_reset() {
        let policy = HealthPolicy::default();
        let xid = |number| HealthFault::xid(number, None);
        let class = HealthFault::new;
        for (faults, recommended, expected) in [
            (vec![], None, false),
            (vec![xid(48)], None, true),
            (vec![xid(48)], Some(Recovery::DrainAndReset), true),
            (vec![xid(48)], Some(Recovery::None), false),
            (vec![xid(48)], Some(Recovery::Reboot), false),
            (vec![xid(79)], None, false),
            (vec![xid(94)], None, false),
            (vec![xid(48), class(HealthClass::RowRemapFailed)], None, false),
            (vec![xid(48), class(HealthClass::Thermal), class(HealthClass::FabricNotReady)], None, true),
            (vec![class(HealthClass::RowRemapPending)], None, true),
            (vec![class(HealthClass::RecoveryAction)], Some(Recovery::Unknown(23)), false),
            (vec![class(HealthClass::RecoveryAction)], Some(Recovery::BusReset), false),
        ] {
            assert_eq!(helps(&card(&faults, recommended), &policy), expected, "{faults:?} {recommended:?}");
        }
        let told_only = HealthPolicy::default().with(HealthClass::NvlinkDown, HealthEffect::Informational);
        assert!(!helps(&card(&[class(HealthClass::NvlinkDown)], None), &told_only));
        let hangs = Card { health: Health::NotAnswering, ..card(&[xid(48)], None) };
        assert!(!helps(&hangs, &policy));
    }

    #[test]
    fn a_card_is_tried_three_times_with_longer_and_longer_pauses() {
        let mut now = Instant::now();
        let mut attempts = Attempts::default();
        assert!(attempts.may_try(now) && attempts.are_over(now));
        for pause in PAUSES {
            attempts.add(now);
            assert!(!attempts.may_try(now + pause / 2) && attempts.may_try(now + pause));
            assert_eq!(attempts.pause(), Some(pause));
            now += pause;
        }
        attempts.add(now);
        assert!(!attempts.may_try(now + 100 * COUNTED_FOR) && attempts.pause().is_none());
        assert!(!attempts.are_over(now + COUNTED_FOR) && attempts.are_over(now + 2 * COUNTED_FOR));
    }
}
