//! The last day, in memory: a point a minute for the fleet, and sums an hour for each namespace.

use std::collections::{BTreeMap, VecDeque};

use tessera_api::fleet_view::FleetView;

use super::merge::activity;
use super::prices::Prices;

/// Points that are kept: a day.
const POINTS: usize = 24 * 60;

/// Namespaces of which sums are kept in an hour; what others have is added up under [`OTHERS`].
const NAMESPACES: usize = 500;

/// No namespace has this name.
pub const OTHERS: &str = "(others)";

/// The longest time between two looks that is counted: after a longer pause nobody knows what was.
const LONGEST: u64 = 300;

/// The fleet at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Unix time, in seconds.
    pub at: u64,
    /// Cards.
    pub cards: u32,
    /// Of them, allocated.
    pub allocated: f64,
    /// Of them, busy: the sum of what their multiprocessors did.
    pub busy: f64,
}

/// What somebody had and used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Hours of cards that were allocated.
    pub allocated: f64,
    /// Of them, those in which it is known what the card did.
    pub measured: f64,
    /// Of those, the hours that multiprocessors were busy.
    pub busy: f64,
    /// Price of the measured hours in which nothing was busy.
    pub lost: f64,
}

/// The last day.
#[derive(Debug, Default)]
pub struct History {
    points: VecDeque<Point>,
    /// Sums by namespace, of hours since the epoch.
    hours: VecDeque<(u64, BTreeMap<String, Tally>)>,
}

impl Tally {
    /// Hours that were allocated and measured, and in which nothing was busy.
    pub fn idle(&self) -> f64 {
        (self.measured - self.busy).max(0.0)
    }

    /// Adds another's hours.
    pub fn add(&mut self, other: &Tally) {
        self.allocated += other.allocated;
        self.measured += other.measured;
        self.busy += other.busy;
        self.lost += other.lost;
    }
}

impl Point {
    /// What the fleet is doing.
    pub fn of(view: &FleetView) -> Self {
        let mut point = Self { at: view.at, ..Self::default() };
        for card in view.nodes.iter().flat_map(|node| node.cards.values()) {
            point.cards += 1;
            point.allocated += f64::from(card.allocated) / 1000.0;
            let busy = card.usage.as_ref().and_then(|usage| usage.sm_activity).unwrap_or_default();
            point.busy += busy.clamp(0.0, 1.0);
        }
        point
    }
}

impl History {
    /// Takes in what the fleet does now, as what it did since the look before.
    pub fn add(&mut self, view: &FleetView, prices: &Prices) {
        let last = self.points.back().map_or(view.at, |point| point.at);
        let seconds = view.at.saturating_sub(last);
        self.points.push_back(Point::of(view));
        if self.points.len() > POINTS {
            self.points.pop_front();
        }
        if seconds == 0 || seconds > LONGEST {
            return;
        }
        let hour = view.at / 3600;
        if self.hours.back().is_none_or(|(last, _)| *last != hour) {
            self.hours.push_back((hour, BTreeMap::new()));
        }
        while self.hours.front().is_some_and(|(first, _)| *first + 24 <= hour) {
            self.hours.pop_front();
        }
        let Some((_, sums)) = self.hours.back_mut() else { return };
        for (namespace, tally) in tallies(view, seconds as f64 / 3600.0, prices) {
            let is_known = sums.contains_key(namespace) || sums.len() < NAMESPACES;
            sums.entry(if is_known { namespace } else { OTHERS }.to_owned()).or_default().add(&tally);
        }
    }

    /// Points, the oldest first.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.points.iter()
    }

    /// The sums of the last day by namespace, and how many hours they are of.
    pub fn by_namespace(&self) -> (BTreeMap<&str, Tally>, f64) {
        let mut sums: BTreeMap<&str, Tally> = BTreeMap::new();
        for (namespace, tally) in self.hours.iter().flat_map(|(_, sums)| sums) {
            sums.entry(namespace).or_default().add(tally);
        }
        let first = self.points.front().map_or(0, |point| point.at);
        let last = self.points.back().map_or(0, |point| point.at);
        (sums, (last - first) as f64 / 3600.0)
    }
}

/// What each namespace had in so many hours.
fn tallies<'v>(view: &'v FleetView, hours: f64, prices: &Prices) -> BTreeMap<&'v str, Tally> {
    let mut sums: BTreeMap<&str, Tally> = BTreeMap::new();
    for card in view.nodes.iter().flat_map(|node| node.cards.values()) {
        for holder in &card.holders {
            let allocated = f64::from(holder.allocated) / 1000.0 * hours;
            let sum = sums.entry(&holder.namespace).or_default();
            sum.allocated += allocated;
            if let Some(activity) = activity(card, holder) {
                // A share may use more than it was granted of an idle card.
                let busy = (activity * hours).min(allocated);
                sum.measured += allocated;
                sum.busy += busy;
                sum.lost += (allocated - busy) * prices.of(card).unwrap_or_default();
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use tessera_api::fleet_view::{CardView, Holder, NodeView};
    use tessera_api::usage::CardUsage;

    use super::*;

    fn fleet(at: u64, namespaces: usize, activity: Option<f64>) -> FleetView {
        let card = |number: usize| {
            let holder = Holder { namespace: format!("team-{number}"), allocated: 1000, ..Holder::default() };
            let usage = CardUsage { sm_activity: activity, ..CardUsage::default() };
            let card = CardView {
                product_name: "A".to_owned(),
                allocated: 1000,
                holders: vec![holder],
                usage: Some(usage),
                ..CardView::default()
            };
            let bus = u8::try_from(number % 256).unwrap();
            (tessera_api::PciBusId::new(u32::try_from(number / 256).unwrap(), bus, 0, 0).unwrap(), card)
        };
        let node = NodeView { cards: (0..namespaces).map(card).collect(), ..NodeView::default() };
        FleetView { at, nodes: vec![node], ..FleetView::default() }
    }

    #[test]
    fn what_is_allocated_and_idle_is_added_up() {
        let prices = Prices { currency: "USD".to_owned(), per_card_hour: [("A".to_owned(), 2.0)].into() };
        let mut history = History::default();
        for minute in 0..=60 {
            history.add(&fleet(3600 + 60 * minute, 1, Some(0.25)), &prices);
        }
        let (sums, hours) = history.by_namespace();
        let sum = sums["team-0"];
        assert!((hours - 1.0).abs() < 1e-9 && (sum.allocated - 1.0).abs() < 1e-9, "{sum:?} in {hours}");
        assert!((sum.idle() - 0.75).abs() < 1e-9 && (sum.lost - 1.5).abs() < 1e-9, "{sum:?}");
    }

    #[test]
    fn what_nobody_measured_is_not_called_idle() {
        let mut history = History::default();
        history.add(&fleet(0, 1, None), &Prices::default());
        history.add(&fleet(60, 1, None), &Prices::default());
        let sum = history.by_namespace().0["team-0"];
        assert!(sum.allocated > 0.0 && sum.measured == 0.0 && sum.idle() == 0.0, "{sum:?}");
        // After a pause of an hour nobody knows what was.
        history.add(&fleet(3_660, 1, Some(0.0)), &Prices::default());
        assert_eq!(history.by_namespace().0["team-0"], sum);
    }

    #[test]
    fn a_day_and_some_hundred_namespaces_are_kept() {
        let mut history = History::default();
        for minute in 0..(24 * 60 + 90) {
            history.add(&fleet(60 * minute, 2, Some(1.0)), &Prices::default());
        }
        assert_eq!(history.points().count(), POINTS);
        assert!(history.hours.len() <= 25);
        let mut wide = History::default();
        wide.add(&fleet(0, 700, Some(1.0)), &Prices::default());
        wide.add(&fleet(60, 700, Some(1.0)), &Prices::default());
        let (sums, _) = wide.by_namespace();
        assert_eq!(sums.len(), NAMESPACES + 1);
        assert!((sums[OTHERS].allocated - 200.0 / 60.0).abs() < 1e-9);
    }
}
