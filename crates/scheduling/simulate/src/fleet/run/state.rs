//! State of a run: who holds devices, until when, and what became of each pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use super::{Change, Placed, PodOutcome, Run};
use crate::fleet::holdings::Holdings;

/// State of a run.
pub(super) struct State {
    pub holdings: Holdings,
    pub outcomes: Vec<PodOutcome>,
    pub taken: Vec<(Duration, f64)>,
    pub used: Vec<(Duration, f64)>,
    /// Cards' worth that each holder uses, or will once its gang is complete.
    uses: HashMap<usize, f64>,
    /// Cards' worth in use.
    using: f64,
    /// End of each pod or holding, and how often it had been evicted at its start: an eviction makes the end void.
    ends: BinaryHeap<Reverse<(Duration, usize, u32)>>,
    /// Number of evictions by pod or holding.
    evictions: HashMap<usize, u32>,
    /// Placed pods of each incomplete gang.
    gangs: HashMap<u32, Vec<usize>>,
    pub cards_used: BTreeMap<String, usize>,
    pub nodes_used: usize,
}

impl State {
    pub fn new(run: &Run<'_>) -> Self {
        let pods = run.workload.pods.len();
        let mut holdings = Holdings::new(run.fleet);
        let mut ends = BinaryHeap::new();
        let mut uses = HashMap::new();
        for (number, held) in run.workload.held.iter().enumerate() {
            holdings.take(run.fleet, pods + number, held.node, &held.allocation);
            ends.extend(held.ends.map(|end| Reverse((end, pods + number, 0))));
            let worth = run.fleet.worth(held.node, std::slice::from_ref(&held.allocation));
            uses.insert(pods + number, worth);
        }
        let mut state = State {
            outcomes: vec![PodOutcome::default(); pods],
            taken: vec![(Duration::ZERO, holdings.taken())],
            holdings,
            used: Vec::new(),
            // The sum of nothing would be -0.
            using: uses.values().fold(0.0, |sum, worth| sum + worth),
            uses,
            ends,
            evictions: HashMap::new(),
            gangs: HashMap::new(),
            cards_used: BTreeMap::new(),
            nodes_used: 0,
        };
        state.note_taken(Duration::ZERO);
        state
    }

    fn evictions(&self, pod: usize) -> u32 {
        self.evictions.get(&pod).copied().unwrap_or_default()
    }

    /// When the next pod or holding ends.
    pub fn next_end(&mut self) -> Option<Duration> {
        while let Some(Reverse((end, pod, evictions))) = self.ends.peek().copied() {
            if evictions == self.evictions(pod) {
                return Some(end);
            }
            self.ends.pop();
        }
        None
    }

    /// Ends one pod or holding whose time is over.
    pub fn end_one(&mut self, run: &Run<'_>, now: Duration) -> Option<usize> {
        self.next_end().filter(|end| *end <= now)?;
        let Reverse((_, pod, _)) = self.ends.pop()?;
        self.using -= self.uses.remove(&pod).unwrap_or_default();
        let held = run.workload.held_by(pod).map(|held| held.node);
        let placed = || Some(self.outcomes.get(pod)?.placed?.1);
        if let Some(node) = held.or_else(placed) {
            self.holdings.give_back(run.fleet, pod, node);
        }
        Some(pod)
    }

    /// Records a change.
    pub fn note(&mut self, now: Duration, run: &Run<'_>, change: &Change) {
        match change {
            Change::Placed(placed) => self.note_placed(now, run, placed),
            Change::Evicted { pod, cards } => self.note_evicted(now, run, *pod, *cards),
        }
    }

    fn note_placed(&mut self, now: Duration, run: &Run<'_>, placed: &Placed) {
        let pod = &run.workload.pods[placed.pod];
        self.outcomes[placed.pod].placed = Some((now, placed.node));
        let busy = f64::from(pod.busy.unwrap_or(100)) / 100.0;
        self.uses.insert(placed.pod, run.fleet.worth(placed.node, &placed.allocations) * busy);
        let together = match pod.gang {
            None => vec![placed.pod],
            Some((gang, size)) => {
                let members = self.gangs.entry(gang).or_default();
                members.push(placed.pod);
                if members.len() < size as usize { Vec::new() } else { std::mem::take(members) }
            }
        };
        for member in together {
            self.outcomes[member].began = Some(now);
            self.using += self.uses.get(&member).copied().unwrap_or_default();
            if let Some(duration) = run.workload.pods[member].duration {
                self.ends.push(Reverse((now.saturating_add(duration), member, self.evictions(member))));
            }
        }
    }

    fn note_evicted(&mut self, now: Duration, run: &Run<'_>, pod: usize, cards: f64) {
        *self.evictions.entry(pod).or_default() += 1;
        let used = self.uses.remove(&pod).unwrap_or_default();
        // Of an incomplete gang nothing is in use yet.
        if self.outcomes.get(pod).is_none_or(|outcome| outcome.began.is_some()) {
            self.using -= used;
        }
        // A holding from the beginning has no outcome.
        let Some(outcome) = self.outcomes.get_mut(pod) else { return };
        outcome.placed = None;
        let began = outcome.began.take().unwrap_or(now);
        outcome.lost.push(began..now);
        outcome.lost_card_hours += (now - began).as_secs_f64() / 3600.0 * cards;
        let gang = run.workload.pods[pod].gang.and_then(|(gang, _)| self.gangs.get_mut(&gang));
        if let Some(members) = gang {
            members.retain(|member| *member != pod);
        }
    }

    pub fn note_taken(&mut self, now: Duration) {
        for (model, used) in self.holdings.used() {
            let most = self.cards_used.entry(model.clone()).or_default();
            *most = (*most).max(*used);
        }
        self.nodes_used = self.nodes_used.max(self.holdings.used_nodes());
        note(&mut self.taken, now, self.holdings.taken());
        note(&mut self.used, now, self.using);
    }
}

/// Adds a number from this time on.
fn note(series: &mut Vec<(Duration, f64)>, now: Duration, number: f64) {
    match series.last_mut() {
        Some((at, last)) if *at == now => *last = number,
        Some((_, last)) if (*last - number).abs() < 1e-9 => {}
        _ => series.push((now, number)),
    }
}
