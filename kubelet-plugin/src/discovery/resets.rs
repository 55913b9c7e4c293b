//! Whether a card was reset since the last look, by this process or an earlier one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tessera_api::PciBusId;
use tessera_api::health::Recovery;

/// Last seen state of a card, to detect resets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LastSeen {
    pub(super) uuid: Option<String>,
    pub(super) driver_version: Option<String>,
    /// The driver's recommendation.
    pub(super) recovery: Option<Recovery>,
    /// Whether the card was lost.
    pub(super) lost: bool,
    /// Whether this process has reset the card since.
    #[serde(skip)]
    pub(super) was_reset: bool,
    pub(super) counted: Counted,
}

/// The cards reset by this process since discovery's last look at them. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ResetCards(Arc<Mutex<BTreeSet<PciBusId>>>);

/// Counters that a reset sets back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Counted {
    pub(super) energy_millijoules: Option<u64>,
    /// Whether the driver keeps an unused card initialized, and so its counters.
    pub(super) persistence_mode: bool,
    /// Whether less was counted in the last look.
    #[serde(skip)]
    is_less: bool,
}

impl ResetCards {
    /// Records a reset of a card.
    pub fn add(&self, card: PciBusId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(card);
    }

    /// Takes all.
    pub(super) fn take(&self) -> BTreeSet<PciBusId> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Counted {
    pub(super) fn new(energy_millijoules: Option<u64>, persistence_mode: bool) -> Self {
        Self { energy_millijoules, persistence_mode, is_less: false }
    }
}

/// Last seen state of all cards.
#[derive(Debug, Default)]
pub(super) struct Resets(BTreeMap<PciBusId, LastSeen>);

impl Resets {
    /// Starts with the state of an earlier process.
    pub(super) fn of_earlier(cards: BTreeMap<PciBusId, LastSeen>) -> Self {
        Self(cards)
    }

    /// Marks the card as lost.
    pub(super) fn lose(&mut self, card: PciBusId) {
        self.0.entry(card).or_default().lost = true;
    }

    /// Records a reset of the card, for the next look.
    pub(super) fn note(&mut self, card: PciBusId) {
        self.0.entry(card).or_default().was_reset = true;
    }

    /// Records the card's present state, and returns whether the card was reset or replaced. `same_library` says whether the driver
    /// library has been open since the last look: a card opened by nobody counts anew without a reset, unless in
    /// persistence mode.
    pub(super) fn learn(&mut self, card: PciBusId, mut now: LastSeen, same_library: bool) -> bool {
        let Some(before) = self.0.get(&card) else {
            self.0.insert(card, now);
            return false;
        };
        let differ = |one: &Option<String>, other: &Option<String>| {
            one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| one != other)
        };
        let recovered =
            before.recovery.is_some_and(Recovery::is_reset) && now.recovery == Some(Recovery::None);
        let energy = before.counted.energy_millijoules.zip(now.counted.energy_millijoules);
        let is_less = energy.is_some_and(|(before, now)| now < before)
            && (same_library || before.counted.persistence_mode);
        // A single value below the last may be an error.
        let counts_anew = is_less && before.counted.is_less;
        let was_reset = before.lost
            || before.was_reset
            || differ(&before.uuid, &now.uuid)
            || differ(&before.driver_version, &now.driver_version)
            || recovered
            || counts_anew;
        if is_less && !was_reset {
            now.counted =
                Counted { energy_millijoules: before.counted.energy_millijoules, is_less, ..now.counted };
        }
        if !was_reset {
            // The driver could not be asked this time.
            now.recovery = now.recovery.or(before.recovery);
        }
        self.0.insert(card, now);
        was_reset
    }

    /// Last seen state of the card.
    pub(super) fn last_seen(&self, card: PciBusId) -> Option<&LastSeen> {
        self.0.get(&card)
    }

    /// Whether another look is needed to detect a reset.
    pub(super) fn wants_another_look(&self) -> bool {
        self.0.values().any(|seen| seen.counted.is_less)
    }
}

impl LastSeen {
    /// Whether the difference to `other` is worth a write: energy grows all the time.
    pub(super) fn is_news_to(&self, other: &Self) -> bool {
        let without_energy = |seen: &Self| {
            let counted = Counted { energy_millijoules: None, is_less: false, ..seen.counted };
            Self { counted, ..seen.clone() }
        };
        let grew = match (other.counted.energy_millijoules, self.counted.energy_millijoules) {
            (Some(before), Some(now)) => now < before || now / 2 > before,
            (before, now) => before != now,
        };
        grew || without_energy(self) != without_energy(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> PciBusId {
        PciBusId::new(0, 0x3b, 0, 0).unwrap()
    }

    fn seen(recovery: Option<Recovery>, energy: u64) -> LastSeen {
        LastSeen {
            uuid: Some("GPU-1".to_owned()),
            driver_version: Some("550.54".to_owned()),
            recovery,
            lost: false,
            was_reset: false,
            counted: Counted { energy_millijoules: Some(energy), ..Counted::default() },
        }
    }

    fn resets(before: LastSeen) -> Resets {
        Resets::of_earlier([(card(), before)].into())
    }

    #[test]
    fn a_card_whose_driver_recommends_a_reset_no_longer_was_reset() {
        let none = Some(Recovery::None);
        for (recovery, expected) in [
            (Recovery::Reset, true),
            (Recovery::DrainAndReset, true),
            (Recovery::Reboot, true),
            (Recovery::BusReset, true),
            (Recovery::DrainPeerToPeer, false),
            (Recovery::Unknown(23), false),
            (Recovery::None, false),
        ] {
            assert_eq!(resets(seen(Some(recovery), 5)).learn(card(), seen(none, 9), false), expected);
        }
        let mut failed = resets(seen(Some(Recovery::Reset), 5));
        assert!(!failed.learn(card(), seen(None, 6), false), "it could not be asked");
        assert!(failed.learn(card(), seen(none, 7), false));
    }

    #[test]
    fn another_card_another_driver_and_one_that_was_lost_count_as_reset() {
        let now = || seen(None, 9);
        assert!(!resets(now()).learn(card(), now(), false));
        assert!(resets(LastSeen { uuid: Some("GPU-2".to_owned()), ..now() }).learn(card(), now(), true));
        let older = LastSeen { driver_version: Some("535.1".to_owned()), ..now() };
        assert!(resets(older).learn(card(), now(), false));
        let mut by_us = resets(now());
        by_us.note(card());
        assert!(by_us.learn(card(), now(), false) && !by_us.learn(card(), now(), false));
        let mut lost = resets(now());
        lost.lose(card());
        assert!(lost.learn(card(), now(), true) && !lost.learn(card(), now(), true));
    }

    #[test]
    fn a_card_that_counts_anew_was_reset_but_not_by_opening_the_library_anew() {
        let mut open = resets(seen(None, 1000));
        assert!(!open.learn(card(), seen(None, 5), true) && open.wants_another_look(), "it may be an error");
        assert!(!open.learn(card(), seen(None, 1010), true) && !open.wants_another_look(), "it was");
        assert!(!open.learn(card(), seen(None, 6), true) && open.learn(card(), seen(None, 7), true));
        assert!(!open.wants_another_look() && !open.learn(card(), seen(None, 8), true));

        let mut opened_anew = resets(seen(None, 1000));
        assert!(!opened_anew.learn(card(), seen(None, 5), false));
        assert!(!opened_anew.learn(card(), seen(None, 6), true), "nobody had it open meanwhile");

        let mut kept = seen(None, 1000);
        kept.counted.persistence_mode = true;
        let mut kept = resets(kept);
        assert!(!kept.learn(card(), seen(None, 5), false) && kept.learn(card(), seen(None, 6), true));
    }

    #[test]
    fn energy_is_written_each_time_it_doubled() {
        let (before, mut other) = (seen(None, 1000), seen(None, 1000));
        assert!(!seen(None, 1500).is_news_to(&before) && seen(None, 3000).is_news_to(&before));
        assert!(seen(None, 900).is_news_to(&before) && seen(Some(Recovery::Reset), 1000).is_news_to(&before));
        other.lost = true;
        assert!(other.is_news_to(&before));
    }
}
