//! Derives the health of cards from the driver's events.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::PciBusId;
use tessera_inventory::machine::Health;
use tessera_nvml::Event;

/// XIDs that are caused by faults of a program and don't indicate a faulty card: graphics engine exception, memory
/// page fault, stopped processing, preemptive clean-up, video processor exception, context switch timeout. NVIDIA's
/// DRA driver and device plugin ignore the same ones.
const OF_PROGRAMS: &[u64] = &[13, 31, 43, 45, 68, 109];

/// The driver's events that count against cards. Grows with the number of cards, not of events.
#[derive(Clone, Debug, Default)]
pub(super) struct HealthBook {
    xids: BTreeMap<PciBusId, u64>,
    /// Whether `xids` differs from what is on the disk.
    is_unsaved: bool,
    told: BTreeSet<(Option<PciBusId>, u64)>,
}

impl HealthBook {
    /// Starts with XIDs from before this process.
    pub(super) fn of_earlier(xids: BTreeMap<PciBusId, u64>) -> Self {
        for (card, xid) in &xids {
            tracing::warn!(%card, xid, "the card had an XID error before this start: it gets no new work until it was reset");
        }
        Self { told: xids.iter().map(|(card, xid)| (Some(*card), *xid)).collect(), xids, is_unsaved: false }
    }

    /// What to save, if anything changed.
    pub(super) fn unsaved(&mut self) -> Option<BTreeMap<PciBusId, u64>> {
        std::mem::take(&mut self.is_unsaved).then(|| self.xids.clone())
    }

    /// Notes that saving failed.
    pub(super) fn keep_unsaved(&mut self) {
        self.is_unsaved = true;
    }

    /// Notes an event. Returns whether it is a reason to look at the cards again.
    pub(super) fn note(&mut self, event: &Event) -> bool {
        let (card, xid) = match event {
            Event::Xid { card, xid, .. } => (*card, *xid),
            Event::Interrupted { error } => {
                tracing::warn!(%error, "the driver stopped reporting events; looking at the cards again");
                return true;
            }
        };
        let of_program = OF_PROGRAMS.contains(&xid);
        if self.told.insert((card, xid)) {
            let name = card.map(tracing::field::display);
            match card {
                _ if of_program => tracing::info!(
                    card = name,
                    xid,
                    "XID error that a program brought about (told once for each card and XID)"
                ),
                Some(_) => {
                    tracing::error!(
                        card = name,
                        xid,
                        "XID error: the card gets no new work until it was reset"
                    );
                }
                None => {
                    tracing::error!(xid, "XID error of a card that does not say which; looking at all cards")
                }
            }
        }
        match card {
            _ if of_program => false,
            Some(card) => {
                let is_news = self.xids.insert(card, xid) != Some(xid);
                self.is_unsaved |= is_news;
                is_news
            }
            None => true,
        }
    }

    /// Notes that the card was reset or replaced.
    pub(super) fn forget(&mut self, card: PciBusId) {
        self.is_unsaved |= self.xids.remove(&card).is_some();
        self.told.retain(|(told, _)| *told != Some(card));
    }

    /// Health of a card that answers, by its events.
    pub(super) fn of(&self, card: PciBusId) -> Health {
        match self.xids.get(&card) {
            Some(xid) => Health::Unhealthy { reason: format!("xid-{xid}") },
            None => Health::Healthy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> PciBusId {
        PciBusId::new(0, 0x3b, 0, 0).unwrap()
    }

    fn xid(xid: u64) -> Event {
        Event::Xid { card: Some(card()), xid, gpu_instance: None, compute_instance: None }
    }

    #[test]
    fn a_broken_card_is_told_from_a_broken_program() {
        let card = card();
        let mut book = HealthBook::default();
        assert!(!book.note(&xid(31)));
        assert_eq!(book.of(card), Health::Healthy);
        assert!(book.note(&xid(79)));
        assert!(!book.note(&xid(79)), "the same again is no news");
        assert_eq!(book.of(card), Health::Unhealthy { reason: "xid-79".into() });
        assert_eq!(book.unsaved(), Some([(card, 79)].into()));
        assert_eq!(book.unsaved(), None);
        book.forget(card);
        assert_eq!(book.of(card), Health::Healthy);
        assert_eq!(book.unsaved(), Some(BTreeMap::new()));
    }

    #[test]
    fn what_was_said_before_the_start_counts() {
        let card = card();
        let mut book = HealthBook::of_earlier([(card, 79)].into());
        assert_eq!(book.of(card), Health::Unhealthy { reason: "xid-79".into() });
        assert!(!book.note(&xid(79)) && book.unsaved().is_none(), "the same again is no news");
    }

    #[test]
    fn a_storm_of_events_takes_no_room() {
        let mut book = HealthBook::default();
        for _ in 0..100_000 {
            book.note(&xid(31));
            book.note(&xid(48));
        }
        assert_eq!((book.xids.len(), book.told.len()), (1, 2));
    }
}
