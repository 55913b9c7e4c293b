//! Ranked nodes for a demand, with reservations and refusals applied.

use k8s_openapi::api::core::v1::Pod;
use tessera_placement::Time;
use tessera_placement::demand::Demand;
use tessera_placement::fleet::NodeIndex;
use tessera_placement::ranking::{Rankings, Side};
use tessera_placement::view::View;

use super::Decider;
use crate::queue::{Asks, Queue};
use crate::refusals::{self, Refusals};

/// The nodes for a demand under one way of allocating devices.
pub(super) struct Ranked<'d> {
    pub ranking: &'d Side,
    pub view: View<'d>,
    refusals: &'d Refusals,
    standing: &'d Queue,
}

impl Ranked<'_> {
    /// Whether the node is kept for others. `asks` is `None` if no node is kept for anybody.
    pub fn is_kept(&self, asks: Option<&Asks>, index: NodeIndex) -> bool {
        let node = self.view.fleet.node(index);
        asks.is_some_and(|asks| self.standing.is_kept_from(asks, &node.name, node.pools()))
    }

    /// Number of suitable nodes kept for others.
    pub fn kept(&self, asks: Option<&Asks>) -> usize {
        self.ranking.best().filter(|(_, index)| self.is_kept(asks, *index)).count()
    }

    /// Whether the node is neither kept for others nor recently refused a pod of this owner.
    pub fn is_free(&self, now: Time, asks: Option<&Asks>, owner: &str, index: NodeIndex) -> bool {
        !self.is_kept(asks, index) && !self.refusals.contains(owner, &self.view.fleet.node(index).name, now)
    }
}

impl Decider {
    /// The nodes with managed cards for this demand, as of now.
    pub(super) fn ranked(&mut self, demand: &Demand) -> Ranked<'_> {
        let (mut view, rankings, refusals, standing) = self.split();
        let ranking = rankings.managed(demand, &mut view);
        Ranked { ranking, view, refusals, standing }
    }

    /// The nodes where kube-scheduler would find devices for this demand, as of now.
    pub(super) fn ranked_others(&mut self, demand: &Demand) -> Ranked<'_> {
        let (mut view, rankings, refusals, standing) = self.split();
        let ranking = rankings.others(demand, &mut view);
        Ranked { ranking, view, refusals, standing }
    }

    /// Whether all nodes with room now, or all with room if less were held, recently refused a pod of the same owner.
    pub(super) fn is_refused_wherever_it_fits(&mut self, now: Time, demand: &Demand, pod: &Pod) -> bool {
        let owner = refusals::owner(pod);
        if !self.refusals.has_any(&owner) {
            return false;
        }
        let ranked = self.ranked(demand);
        let is_refused = |index: NodeIndex| {
            let node = &ranked.view.fleet.node(index).name;
            ranked.refusals.contains(&owner, node, now)
        };
        let all = |mut nodes: Box<dyn Iterator<Item = NodeIndex> + '_>| {
            nodes.next().is_some_and(is_refused) && nodes.all(is_refused)
        };
        all(Box::new(ranked.ranking.best().map(|(_, index)| index))) || all(Box::new(ranked.ranking.could()))
    }

    /// State for judging nodes.
    pub(super) fn view_of_nodes(&mut self) -> View<'_> {
        self.split().0
    }

    fn split(&mut self) -> (View<'_>, &mut Rankings, &Refusals, &Queue) {
        let view = View {
            handed_over: self.handed_over(),
            cluster: &self.cluster,
            fleet: &mut self.fleet,
            asker: &mut self.asker,
            driver: &self.driver,
            mix: &self.mix,
        };
        (view, &mut self.rankings, &self.refusals, &self.standing)
    }
}
