//! The fleet for display, collected one node at a time so as not to block on a large fleet.

use std::collections::BTreeMap;

use tessera_cluster::PodExt;
use tessera_cluster::gang::GangId;
use tessera_placement::Time;

use super::{Decider, unplaced};
use crate::queue::Order;
use crate::view::{self, FleetSnapshot, ViewPass};

impl Decider {
    /// Adds the next node to the view; `false` once complete. Each node is shown as of its turn.
    pub fn view_next(&mut self, pass: &mut ViewPass) -> bool {
        if pass.next as usize >= self.fleet.len() {
            return false;
        }
        let node = view::of_node(&mut self.fleet, pass.next, &self.cluster, &self.driver);
        pass.next += 1;
        // Slices of a deleted node stay for a while.
        if !node.cards.is_empty() {
            pass.nodes.push(node);
        }
        true
    }

    /// Ends a pass: its nodes, and the pods waiting now.
    #[must_use]
    pub fn view(&self, pass: ViewPass, now: Time) -> FleetSnapshot {
        let mut of_gangs: BTreeMap<&GangId, Order> = BTreeMap::new();
        let mut waiting = Vec::new();
        for (key, why) in self.waiting() {
            let pod = self.cluster.objects().pods.get(key).map(AsRef::as_ref);
            let gang = self.gangs.of(key);
            let order = match gang {
                Some(gang) => of_gangs.entry(gang).or_insert_with(|| self.order_of(gang)).clone(),
                None => Order::of(pod.into_iter()),
            };
            let text = self.waiting.get(key).and_then(|waiting| waiting.shape_text.as_deref());
            let waits = view::waiting_pod(key, pod, gang, why.to_owned(), self.pools_of_shape(text));
            waiting.push((Some(order), waits));
        }
        for (key, text) in self.unplaced() {
            let Some(pod) = self.cluster.objects().pods.get(key) else { continue };
            // kube-scheduler's order among them is unknown.
            let pools = self.pools_of_shape(Some(text));
            let mut waits = view::waiting_pod(key, Some(pod), None, unplaced::reason(pod), pools);
            waits.priority = pod.priority();
            waiting.push((None, waits));
        }
        FleetSnapshot { at: now.as_secs(), leads: self.term.is_some(), nodes: pass.nodes, waiting }
    }

    fn pools_of_shape(&self, text: Option<&str>) -> Vec<String> {
        let pools = text.and_then(|text| self.pools_by_shape.get(text));
        pools.into_iter().flatten().cloned().collect()
    }
}
