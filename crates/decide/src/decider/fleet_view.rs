//! The fleet for people, a node at a time, so that nothing waits for the whole of a large one.

use std::collections::BTreeMap;

use tessera_cluster::PodExt;
use tessera_cluster::gang::GangId;
use tessera_placement::Time;

use super::{Decider, unplaced};
use crate::queue::Order;
use crate::view::{self, FleetSnapshot, ViewPass};

impl Decider {
    /// Takes the next node into the view; `false` when all are in it. Each node is as it was when its turn came.
    pub fn view_next(&mut self, pass: &mut ViewPass) -> bool {
        if pass.next as usize >= self.fleet.len() {
            return false;
        }
        let node = view::of_node(&mut self.fleet, pass.next, &self.cluster, &self.driver);
        pass.next += 1;
        // Slices of a node that is gone stay for a while.
        if !node.cards.is_empty() {
            pass.nodes.push(node);
        }
        true
    }

    /// Ends a pass: its nodes, and who waits now.
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
            // Which of them kube-scheduler tries first, nobody else knows.
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
