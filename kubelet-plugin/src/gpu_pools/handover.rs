//! Cards no longer managed keep their taint for a while.
//!
//! The node's report has the new allocation at once, so the controller stops allocating the card. A write in flight at
//! that moment may arrive later, and kube-scheduler must not have allocated the same device to another claim by
//! then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tessera_api::PciBusId;
use tessera_api::gpu_pool::Allocation;
use tessera_api::node_report::CardReport;
use tessera_inventory::pool::CardOffer;
use tokio::time::Instant;

use super::Resolution;

/// The cards being handed over from the controller to kube-scheduler.
#[derive(Debug)]
pub(super) struct Handover {
    /// How long the taint stays.
    time: Duration,
    /// End of the taint, by card.
    until: BTreeMap<PciBusId, Instant>,
    /// Whether the API server had the publication.
    was_published: bool,
}

impl Handover {
    /// Nothing is handed over yet; taints stay for `time`.
    pub(super) fn new(time: Duration) -> Self {
        Self { time, until: BTreeMap::new(), was_published: false }
    }

    /// Keeps the taint in the offer of cards in `resolution` that are managed no longer, until their time has passed.
    ///
    /// `tainted` are the cards with the taint, including an earlier process's, whose time begins anew.
    /// `is_published` says whether the API server has the new publication. The time begins then: before, the
    /// controller cannot know.
    pub(super) fn keep_taints(
        &mut self,
        now: Instant,
        is_published: bool,
        tainted: &mut BTreeSet<PciBusId>,
        resolution: &mut Resolution,
    ) {
        let is_managed = |report: &CardReport| report.allocation == Allocation::Managed;
        let managed: BTreeSet<PciBusId> =
            resolution.cards.iter().filter(|(_, report)| is_managed(report)).map(|(card, _)| *card).collect();
        self.until.retain(|card, _| !managed.contains(card));
        if !(std::mem::replace(&mut self.was_published, is_published) && is_published) {
            self.until.values_mut().for_each(|until| *until = now + self.time);
        }
        tainted.retain(|card| {
            if managed.contains(card) {
                return true;
            }
            let until = *self.until.entry(*card).or_insert_with(|| {
                let seconds = self.time.as_secs();
                tracing::info!(%card, seconds, "managed no longer: the taint stays for the handover time");
                now + self.time
            });
            if until > now {
                let offer = resolution.offers.of(*card).clone();
                let allocation = Allocation::Managed;
                resolution.offers.set(*card, CardOffer { allocation, ..offer });
                return true;
            }
            self.until.remove(card);
            false
        });
        tainted.extend(managed);
    }

    /// When the next taint goes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.until.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(60);

    fn pci(bus: u8) -> PciBusId {
        PciBusId::new(0, bus, 0, 0).unwrap()
    }

    /// Cards at 1 and 2 with these allocations.
    fn resolution(allocations: [Allocation; 2]) -> Resolution {
        let mut resolution = Resolution::default();
        for (bus, allocation) in (1..).zip(allocations) {
            let pool = Some("p".to_owned());
            resolution.cards.insert(pci(bus), CardReport { allocation, ..CardReport::default() });
            resolution.offers.set(pci(bus), CardOffer { pool, allocation, ..CardOffer::default() });
        }
        resolution
    }

    struct Node {
        handover: Handover,
        tainted: BTreeSet<PciBusId>,
        is_published: bool,
        began: Instant,
    }

    impl Node {
        fn new() -> Self {
            let handover = Handover::new(TIME);
            Self { handover, tainted: BTreeSet::new(), is_published: true, began: Instant::now() }
        }

        /// The cards with taints when these allocations hold, after so many seconds.
        fn tainted(&mut self, seconds: u64, allocations: [Allocation; 2]) -> Vec<u8> {
            let mut resolution = resolution(allocations);
            let reported = resolution.cards.clone();
            let now = self.began + Duration::from_secs(seconds);
            self.handover.keep_taints(now, self.is_published, &mut self.tainted, &mut resolution);
            assert_eq!(resolution.cards, reported, "the report is about the pools alone");
            let is_tainted = |bus: &u8| resolution.offers.of(pci(*bus)).allocation == Allocation::Managed;
            assert!([1, 2].iter().all(|bus| resolution.offers.of(pci(*bus)).pool.as_deref() == Some("p")));
            let tainted: Vec<u8> = [1, 2].into_iter().filter(is_tainted).collect();
            assert_eq!(self.tainted, tainted.iter().map(|bus| pci(*bus)).collect());
            tainted
        }

        /// In how many seconds after the begin something is to be done.
        fn next(&self) -> Option<u64> {
            self.handover.next().map(|next| (next - self.began).as_secs())
        }
    }

    const MANAGED: [Allocation; 2] = [Allocation::Managed, Allocation::Managed];
    const FIRST_LEFT: [Allocation; 2] = [Allocation::Steered, Allocation::Managed];
    const NATIVE: [Allocation; 2] = [Allocation::Native, Allocation::Native];

    #[test]
    fn a_taint_goes_when_the_time_since_the_change_has_passed() {
        let mut node = Node::new();
        assert_eq!((node.tainted(0, NATIVE), node.next()), (vec![], None));
        assert_eq!((node.tainted(10, MANAGED), node.next()), (vec![1, 2], None));
        assert_eq!((node.tainted(100, FIRST_LEFT), node.next()), (vec![1, 2], Some(160)));
        assert_eq!((node.tainted(130, NATIVE), node.next()), (vec![1, 2], Some(160)));
        assert_eq!((node.tainted(160, NATIVE), node.next()), (vec![2], Some(190)));
        assert_eq!((node.tainted(190, NATIVE), node.next()), (vec![], None));
        assert!(node.tainted(200, NATIVE).is_empty());
    }

    #[test]
    fn a_card_that_is_managed_again_keeps_it_and_the_next_change_has_the_whole_time() {
        let mut node = Node::new();
        node.tainted(0, MANAGED);
        node.tainted(1, FIRST_LEFT);
        assert_eq!((node.tainted(30, MANAGED), node.next()), (vec![1, 2], None));
        assert_eq!((node.tainted(80, FIRST_LEFT), node.next()), (vec![1, 2], Some(140)));
        assert_eq!(node.tainted(139, FIRST_LEFT), vec![1, 2]);
        assert_eq!(node.tainted(140, FIRST_LEFT), vec![2]);
    }

    #[test]
    fn the_time_begins_when_the_report_is_published() {
        let mut node = Node::new();
        node.tainted(0, MANAGED);
        assert_eq!((node.tainted(10, NATIVE), node.next()), (vec![1, 2], Some(70)));
        node.is_published = false;
        assert_eq!((node.tainted(11, NATIVE), node.next()), (vec![1, 2], Some(71)));
        // The API server is away.
        assert_eq!((node.tainted(71, NATIVE), node.next()), (vec![1, 2], Some(131)));
        node.is_published = true;
        assert_eq!((node.tainted(100, NATIVE), node.next()), (vec![1, 2], Some(160)));
        assert_eq!((node.tainted(159, NATIVE), node.next()), (vec![1, 2], Some(160)));
        assert_eq!((node.tainted(160, NATIVE), node.next()), (vec![], None));
    }

    #[test]
    fn after_a_restart_the_time_begins_anew() {
        let mut node = Node::new();
        node.tainted(0, MANAGED);
        node.tainted(1, FIRST_LEFT);
        node.handover = Handover::new(TIME);
        assert_eq!((node.tainted(50, NATIVE), node.next()), (vec![1, 2], Some(110)));
        assert!(node.tainted(110, NATIVE).is_empty());
    }

    #[test]
    fn without_a_time_the_taint_goes_at_once_and_a_card_that_is_gone_is_forgotten() {
        let mut node = Node { handover: Handover::new(Duration::ZERO), ..Node::new() };
        node.tainted(0, MANAGED);
        assert_eq!((node.tainted(1, NATIVE), node.next()), (vec![], None));
        node.tainted.insert(pci(3));
        assert!(node.tainted(2, NATIVE).is_empty());
    }
}
