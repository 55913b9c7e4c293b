//! Units of a plan that turn out needless.

use super::choice::key;
use super::search::Search;
use crate::fit::Fit;
use crate::fleet::NodeIndex;
use crate::seats::{Placed, Seat};

/// Limit on units of a plan checked for being needless.
const MOST_SPARED: usize = 16;

impl Search<'_, '_, '_> {
    /// The chosen units without those needless: their seats get other devices, or other nodes where somebody goes anyway. Seats beyond
    /// those needed may lose their places.
    pub(super) fn spare(&mut self, placed: &mut Vec<Placed>, needed: usize) -> Vec<usize> {
        let mut victims = self.chosen.clone();
        if victims.len() < 2 {
            return victims;
        }
        let mut dearest = victims.clone();
        dearest.sort_by_cached_key(|unit| std::cmp::Reverse(key(&self.units.all()[*unit])));
        for spared in dearest.into_iter().take(MOST_SPARED) {
            let before = self.statement.checkpoint();
            let others: Vec<usize> = victims.iter().copied().filter(|unit| *unit != spared).collect();
            others.iter().for_each(|unit| self.set_aside(*unit));
            let moved = self.place_without(placed, spared, placed.len() - needed);
            self.statement.rollback(before);
            if let Some(moved) = moved {
                victims = others;
                let nodes = self.units.nodes_of(spared);
                placed.retain(|placed| !nodes.contains(&placed.node));
                placed.extend(moved);
            }
        }
        victims
    }

    /// Other devices or nodes for the seats placed on nodes of a unit that stays; `None` where more than `fewer` of them do not fit.
    fn place_without(&mut self, placed: &[Placed], unit: usize, mut fewer: usize) -> Option<Vec<Placed>> {
        let nodes = self.units.nodes_of(unit).clone();
        let (affected, others): (Vec<&Placed>, Vec<&Placed>) =
            placed.iter().partition(|placed| nodes.contains(&placed.node));
        for Placed { seat, node, takes } in others {
            let Seat { key, pod, demand } = self.seats[*seat];
            if !self.statement.place(key, pod, demand, *node, takes) {
                return None;
            }
        }
        let mut moved = Vec::new();
        for Placed { seat, node, .. } in affected {
            let elsewhere = self.touched.iter().copied().filter(|other| other != node);
            let places: Vec<NodeIndex> = std::iter::once(*node).chain(elsewhere).collect();
            match places.into_iter().find_map(|node| self.place_exactly(*seat, node)) {
                Some(again) => moved.push(again),
                None => fewer = fewer.checked_sub(1)?,
            }
        }
        Some(moved)
    }

    /// Places the seat on the node, if it fits there with what is tried.
    fn place_exactly(&mut self, seat: usize, node: NodeIndex) -> Option<Placed> {
        let Seat { key, pod, demand } = self.seats[seat];
        let shape = self.shapes.get(&demand.shape)?;
        shape.nodes.get(&node)?;
        let requested = shape.requested.clone();
        if !self.lack(demand, &requested, node)?.is_met() {
            return None;
        }
        let Fit::Takes(takes) = self.fit(demand, node) else { return None };
        let is_placed = self.statement.place(key, pod, demand, node, &takes);
        is_placed.then_some(Placed { seat, node, takes })
    }
}
