//! Derives the faults of cards from the driver's events.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tessera_api::PciBusId;
use tessera_api::facts::{GpuInstance, Placement};
use tessera_api::health::{HealthEffect, HealthFault, HealthPolicy};
use tessera_nvml::Event;

use super::resets::LastSeen;

/// Maximum number of XIDs kept for a card: more would not change the card's state.
const MOST: usize = 16;

/// The driver recommends another recovery now.
const RECOVERY_ACTION_CHANGED: u64 = 154;

/// An XID counted against a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct XidError {
    /// Its number.
    pub(super) xid: u64,
    /// The GPU instance of the XID, by its id at the time.
    #[serde(default)]
    gpu_instance: Option<u32>,
    /// The memory slices of this GPU instance, once known. Until then the whole card counts.
    #[serde(default)]
    slices: Option<Placement>,
}

/// The XIDs of each card.
pub(super) type Xids = BTreeMap<PciBusId, Vec<XidError>>;

/// State kept on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remembered {
    /// The counted XIDs.
    pub(super) xids: Xids,
    /// Last seen state of the cards with XIDs, to detect resets.
    pub(super) cards: BTreeMap<PciBusId, LastSeen>,
}

/// The driver's events counted against cards. Grows with the number of cards, not of events.
#[derive(Clone, Debug, Default)]
pub(super) struct HealthBook {
    policy: HealthPolicy,
    xids: Xids,
    /// Last seen state of the cards with XIDs.
    seen: BTreeMap<PciBusId, LastSeen>,
    /// Whether either differs from the disk.
    is_unsaved: bool,
    told: BTreeSet<(Option<PciBusId>, u64)>,
}

impl XidError {
    /// An XID of a whole card.
    pub(super) const fn of_card(xid: u64) -> Self {
        Self { xid, gpu_instance: None, slices: None }
    }
}

impl HealthBook {
    /// Starts with XIDs from before this process. XIDs whose effect in `policy` is `Off` do not count.
    pub(super) fn of_earlier(earlier: Remembered, policy: HealthPolicy) -> Self {
        let Remembered { mut xids, cards: seen } = earlier;
        for (card, errors) in &mut xids {
            errors.retain(|error| policy.effect_of_xid(error.xid) != HealthEffect::Off);
            for XidError { xid, .. } in errors {
                tracing::warn!(%card, xid, "the card had an XID error before this start, which counts until it was reset");
            }
        }
        let told = xids.iter().flat_map(|(card, errors)| errors.iter().map(|error| (Some(*card), error.xid)));
        Self { told: told.collect(), xids, seen, policy, is_unsaved: false }
    }

    /// State to save, if anything changed.
    pub(super) fn unsaved(&mut self) -> Option<Remembered> {
        let remembered = || Remembered { xids: self.xids.clone(), cards: self.seen.clone() };
        std::mem::take(&mut self.is_unsaved).then(remembered)
    }

    /// Marks the state as unsaved after a failure.
    pub(super) fn keep_unsaved(&mut self) {
        self.is_unsaved = true;
    }

    /// Records an event. Returns whether to look at the cards again.
    pub(super) fn note(&mut self, event: &Event) -> bool {
        let (card, xid, gpu_instance) = match event {
            Event::Xid { card, xid, gpu_instance, .. } => (*card, *xid, *gpu_instance),
            Event::Interrupted { error } => {
                tracing::warn!(%error, "the driver stopped reporting events; looking at the cards again");
                return true;
            }
        };
        let effect = self.policy.effect_of_xid(xid);
        if self.told.insert((card, xid)) {
            let name = card.map(tracing::field::display);
            match (card, effect) {
                (_, HealthEffect::Off) => tracing::info!(
                    card = name,
                    xid,
                    "XID error that does not count (told once for each card and XID)"
                ),
                (Some(_), HealthEffect::Informational) => tracing::warn!(card = name, xid, "XID error"),
                (Some(_), _) => {
                    tracing::error!(
                        card = name,
                        xid,
                        "XID error: the card gets no new work until it was reset, unless its driver calls it none"
                    );
                }
                (None, _) => {
                    tracing::error!(xid, "XID error of a card that does not say which; looking at all cards")
                }
            }
        }
        match card {
            _ if effect == HealthEffect::Off => xid == RECOVERY_ACTION_CHANGED,
            Some(card) => {
                let errors = self.xids.entry(card).or_default();
                let is_known =
                    errors.iter().any(|error| (error.xid, error.gpu_instance) == (xid, gpu_instance));
                if is_known || errors.len() >= MOST {
                    return false;
                }
                errors.push(XidError { xid, gpu_instance, slices: None });
                self.is_unsaved = true;
                true
            }
            None => true,
        }
    }

    /// Records a reset or replacement of the card.
    pub(super) fn forget(&mut self, card: PciBusId) {
        self.is_unsaved |= self.xids.remove(&card).is_some();
        self.seen.remove(&card);
        self.told.retain(|(told, _)| *told != Some(card));
    }

    /// Cards with XIDs.
    pub(super) fn cards(&self) -> impl Iterator<Item = PciBusId> + '_ {
        self.xids.iter().filter(|(_, errors)| !errors.is_empty()).map(|(card, _)| *card)
    }

    /// Records the state of a card with XIDs.
    pub(super) fn saw(&mut self, card: PciBusId, now: &LastSeen) {
        if self.seen.get(&card).is_none_or(|before| now.is_news_to(before)) {
            self.seen.insert(card, now.clone());
            self.is_unsaved = true;
        }
    }

    /// Whether the card had an XID in a GPU instance whose memory slices are not known yet.
    pub(super) fn misses_slices(&self, card: PciBusId) -> bool {
        let missing = |error: &XidError| error.gpu_instance.is_some() && error.slices.is_none();
        self.xids.get(&card).is_some_and(|errors| errors.iter().any(missing))
    }

    /// Records the places of a card's GPU instances. Known places stay: another instance may get the same id.
    pub(super) fn place(&mut self, card: PciBusId, instances: &[GpuInstance]) {
        for error in self.xids.get_mut(&card).into_iter().flatten() {
            let Some(id) = error.gpu_instance.filter(|_| error.slices.is_none()) else { continue };
            error.slices =
                instances.iter().find(|instance| instance.id == id).map(|instance| instance.placement);
            self.is_unsaved |= error.slices.is_some();
        }
    }

    /// The faults of a card by its events.
    pub(super) fn of(&self, card: PciBusId) -> impl Iterator<Item = HealthFault> + '_ {
        let errors = self.xids.get(&card).into_iter().flatten();
        errors.map(|error| HealthFault::xid(error.xid, error.slices))
    }
}

#[cfg(test)]
mod tests {
    use tessera_api::health::HealthClass;

    use super::*;

    fn card() -> PciBusId {
        PciBusId::new(0, 0x3b, 0, 0).unwrap()
    }

    fn xid(xid: u64) -> Event {
        Event::Xid { card: Some(card()), xid, gpu_instance: None, compute_instance: None }
    }

    fn of(book: &HealthBook) -> Vec<HealthFault> {
        book.of(card()).collect()
    }

    #[test]
    fn a_broken_card_is_told_from_a_broken_program() {
        let card = card();
        let mut book = HealthBook::default();
        assert!(!book.note(&xid(31)));
        assert!(book.note(&xid(154)), "the driver recommends something else now");
        assert_eq!(of(&book), []);
        assert!(book.note(&xid(79)));
        assert!(!book.note(&xid(79)), "the same again is no news");
        assert!(book.note(&xid(48)));
        assert_eq!(of(&book), [HealthFault::xid(79, None), HealthFault::xid(48, None)]);
        let errors = vec![XidError::of_card(79), XidError::of_card(48)];
        assert_eq!(
            book.unsaved(),
            Some(Remembered { xids: [(card, errors)].into(), ..Remembered::default() })
        );
        let seen = LastSeen { lost: true, ..LastSeen::default() };
        book.saw(card, &seen);
        book.saw(card, &seen);
        assert_eq!(book.unsaved().map(|remembered| remembered.cards), Some([(card, seen)].into()));
        assert_eq!(book.unsaved(), None);
        book.forget(card);
        assert_eq!(of(&book), []);
        assert_eq!(book.unsaved(), Some(Remembered::default()));
    }

    #[test]
    fn what_was_said_before_the_start_counts_as_the_policy_says_now() {
        let errors = vec![XidError::of_card(79), XidError::of_card(31)];
        let earlier = |errors| Remembered { xids: [(card(), errors)].into(), ..Remembered::default() };
        let mut book = HealthBook::of_earlier(earlier(errors), HealthPolicy::default());
        assert_eq!(of(&book), [HealthFault::xid(79, None)]);
        assert!(!book.note(&xid(79)) && book.unsaved().is_none(), "the same again is no news");
        let off = HealthPolicy::default().with(HealthClass::Xid, HealthEffect::Off);
        let errors = vec![XidError::of_card(79)];
        assert_eq!(of(&HealthBook::of_earlier(earlier(errors), off)), []);
    }

    #[test]
    fn an_xid_of_a_partition_counts_for_its_slices_once_they_are_known() {
        let mut book = HealthBook::default();
        let event = Event::Xid { card: Some(card()), xid: 48, gpu_instance: Some(9), compute_instance: None };
        assert!(book.note(&event) && book.misses_slices(card()));
        assert_eq!(of(&book), [HealthFault::xid(48, None)]);
        let at = |start| Placement { start, size: 1 };
        let instance =
            |id, start| GpuInstance { id, profile_id: 19, placement: at(start), compute_instances: vec![] };
        book.place(card(), &[instance(7, 0), instance(9, 2)]);
        assert_eq!(of(&book), [HealthFault::xid(48, Some(at(2)))]);
        assert!(!book.misses_slices(card()) && book.unsaved().is_some());
        book.place(card(), &[instance(9, 5)]);
        assert_eq!(of(&book), [HealthFault::xid(48, Some(at(2)))], "another instance has the id now");
        assert!(book.note(&xid(48)), "the same XID of the whole card is news");
    }

    #[test]
    fn a_storm_of_events_takes_no_room() {
        let mut book = HealthBook::default();
        for number in 0..100_000 {
            book.note(&xid(31));
            book.note(&xid(1000 + number % 50));
        }
        assert_eq!((book.xids[&card()].len(), book.told.len()), (MOST, 51));
    }
}
