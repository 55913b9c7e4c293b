//! The last day: a point a minute for the fleet, and sums an hour for each namespace.

use std::collections::{BTreeMap, VecDeque};

use tessera_api::fleet_view::{DayView, FleetPoint, FleetView, NamespaceDay};

use super::merge::{activity, busy, rounded};
use super::prices::Prices;

/// A day, in seconds.
pub const DAY: u64 = 24 * 3600;

/// Maximum number of points: one day.
const POINTS: usize = 24 * 60;

/// Maximum number of namespaces with sums of their own in an hour. Others are added up under [`OTHERS`].
const NAMESPACES: usize = 500;

/// Not a valid name of a namespace.
pub const OTHERS: &str = "(others)";

/// Longest interval between two views that is counted, in seconds. After a longer pause the use in between is unknown.
const LONGEST: u64 = 300;

/// Cards allocated and used over time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Allocated card-hours.
    pub allocated: f64,
    /// Allocated card-hours with known activity.
    pub measured: f64,
    /// Measured card-hours with busy multiprocessors.
    pub busy: f64,
    /// Price of the measured idle card-hours.
    pub lost: f64,
}

/// The last day.
#[derive(Debug, Default)]
pub struct History {
    points: VecDeque<FleetPoint>,
    hours: VecDeque<Hour>,
}

/// Sums of one hour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hour {
    /// Hours since the epoch.
    pub hour: u64,
    /// Seconds covered by observations.
    pub watched: u64,
    /// Sums by namespace.
    pub sums: BTreeMap<String, Tally>,
}

impl Tally {
    /// Allocated and measured card-hours in which nothing was busy.
    pub fn idle(&self) -> f64 {
        (self.measured - self.busy).max(0.0)
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Tally) {
        self.allocated += other.allocated;
        self.measured += other.measured;
        self.busy += other.busy;
        self.lost += other.lost;
    }
}

/// The current point.
pub fn now(view: &FleetView) -> FleetPoint {
    let mut point = FleetPoint { at: view.at, ..FleetPoint::default() };
    for card in view.nodes.iter().flat_map(|node| node.cards.values()) {
        point.cards += 1;
        point.allocated += f64::from(card.allocated) / 1000.0;
        point.busy += busy(card);
    }
    point.allocated = rounded(point.allocated);
    point.busy = rounded(point.busy);
    point
}

impl History {
    /// Adds the current view, counting its activity for the time since the view before. Returns what was added, by namespace.
    pub fn add<'v>(&mut self, view: &'v FleetView, prices: &Prices) -> BTreeMap<&'v str, Tally> {
        let last = self.points.back().map_or(view.at, |point| point.at);
        let seconds = view.at.saturating_sub(last);
        self.points.push_back(now(view));
        while self.points.len() > POINTS || self.points.front().is_some_and(|first| first.at + DAY < view.at)
        {
            self.points.pop_front();
        }
        if seconds == 0 || seconds > LONGEST {
            return BTreeMap::new();
        }
        let hour = view.at / 3600;
        if self.hours.back().is_none_or(|last| last.hour != hour) {
            self.hours.push_back(Hour { hour, ..Hour::default() });
        }
        while self.hours.front().is_some_and(|first| first.hour + 24 <= hour) {
            self.hours.pop_front();
        }
        let added = tallies(view, seconds as f64 / 3600.0, prices);
        if let Some(Hour { watched, sums, .. }) = self.hours.back_mut() {
            *watched += seconds;
            for (namespace, tally) in &added {
                let is_known = sums.contains_key(*namespace) || sums.len() < NAMESPACES;
                sums.entry(if is_known { namespace } else { OTHERS }.to_owned()).or_default().add(tally);
            }
        }
        added
    }

    /// The day for display, with costs if anything has a price.
    pub fn view(&self, has_prices: bool) -> DayView {
        let day = |tally: &Tally| NamespaceDay {
            namespace: String::new(),
            allocated_hours: rounded(tally.allocated),
            measured_hours: rounded(tally.measured),
            busy_hours: rounded(tally.busy),
            idle_hours: rounded(tally.idle()),
            idle_cost: has_prices.then(|| rounded(tally.lost)),
        };
        let mut all = Tally::default();
        let mut namespaces = Vec::new();
        for (namespace, tally) in self.by_namespace() {
            all.add(&tally);
            namespaces.push(NamespaceDay { namespace: namespace.to_owned(), ..day(&tally) });
        }
        let watched: u64 = self.hours.iter().map(|hour| hour.watched).sum();
        DayView {
            hours: rounded(watched as f64 / 3600.0),
            idle_hours: rounded(all.idle()),
            idle_cost: has_prices.then(|| rounded(all.lost)),
            namespaces,
            points: self.points.iter().copied().collect(),
        }
    }

    /// A day of these points and hours, the oldest first.
    pub fn of(points: Vec<FleetPoint>, hours: Vec<Hour>) -> Self {
        History { points: points.into(), hours: hours.into() }
    }

    /// Points, the oldest first.
    pub fn points(&self) -> impl Iterator<Item = &FleetPoint> {
        self.points.iter()
    }

    /// Hours, the oldest first.
    pub fn hours(&self) -> impl Iterator<Item = &Hour> {
        self.hours.iter()
    }

    /// The sums of the last day by namespace.
    pub fn by_namespace(&self) -> BTreeMap<&str, Tally> {
        let mut sums: BTreeMap<&str, Tally> = BTreeMap::new();
        for (namespace, tally) in self.hours.iter().flat_map(|hour| &hour.sums) {
            sums.entry(namespace).or_default().add(tally);
        }
        sums
    }
}

/// Tally of each namespace for this many hours.
fn tallies<'v>(view: &'v FleetView, hours: f64, prices: &Prices) -> BTreeMap<&'v str, Tally> {
    let mut sums: BTreeMap<&str, Tally> = BTreeMap::new();
    for card in view.nodes.iter().flat_map(|node| node.cards.values()) {
        for holder in &card.holders {
            let allocated = f64::from(holder.allocated) / 1000.0 * hours;
            let sum = sums.entry(&holder.namespace).or_default();
            sum.allocated += allocated;
            if let Some(activity) = activity(card, holder) {
                // A share may use more of an idle card than its grant.
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
pub(super) mod tests {
    use tessera_api::fleet_view::{CardView, Holder, NodeView};
    use tessera_api::usage::CardUsage;

    use super::*;

    pub fn fleet(at: u64, namespaces: usize, activity: Option<f64>) -> FleetView {
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
        let (sum, hours) = (history.by_namespace()["team-0"], history.view(true).hours);
        assert!((hours - 1.0).abs() < 1e-9 && (sum.allocated - 1.0).abs() < 1e-9, "{sum:?} in {hours}");
        assert!((sum.idle() - 0.75).abs() < 1e-9 && (sum.lost - 1.5).abs() < 1e-9, "{sum:?}");
    }

    #[test]
    fn what_nobody_measured_is_not_called_idle() {
        let mut history = History::default();
        history.add(&fleet(0, 1, None), &Prices::default());
        history.add(&fleet(60, 1, None), &Prices::default());
        let sum = history.by_namespace()["team-0"];
        assert!(sum.allocated > 0.0 && sum.measured == 0.0 && sum.idle() == 0.0, "{sum:?}");
        // The use during a pause of an hour is unknown.
        history.add(&fleet(3_660, 1, Some(0.0)), &Prices::default());
        assert_eq!(history.by_namespace()["team-0"], sum);
    }

    #[test]
    fn a_day_and_some_hundred_namespaces_are_kept() {
        let mut history = History::default();
        for minute in 0..(24 * 60 + 90) {
            history.add(&fleet(60 * minute, 2, Some(1.0)), &Prices::default());
        }
        assert_eq!(history.points.len(), POINTS);
        assert!(history.hours.len() <= 25);
        let mut wide = History::default();
        wide.add(&fleet(0, 700, Some(1.0)), &Prices::default());
        wide.add(&fleet(60, 700, Some(1.0)), &Prices::default());
        let sums = wide.by_namespace();
        assert_eq!(sums.len(), NAMESPACES + 1);
        assert!((sums[OTHERS].allocated - 200.0 / 60.0).abs() < 1e-9);
    }
}
