//! Devices available to claims on each node, cached by claims shape: pods differing only in other needs share the entries. Finding
//! devices is the slowest step, and only changed nodes are evaluated again.

use k8s_openapi::api::core::v1::Node;

use crate::demand::Demand;
use crate::fit;
use crate::fleet::NodeIndex;
use crate::kept::Bytes;
use crate::verdict::Verdict;
use crate::view::View;

/// Devices on each node for the claims of one kind of pod.
#[derive(Debug, Default)]
pub(crate) struct DeviceFits {
    of_nodes: Vec<Option<OfNode>>,
    /// Bytes of all results, besides the slots.
    bytes: usize,
}

/// Cached results for one node; `None` until requested.
#[derive(Debug)]
struct OfNode {
    /// See [`crate::fleet::FleetNode::generation`].
    generation: u64,
    /// By claim: whether this controller would allocate devices for the claim.
    is_managed: Option<Box<[bool]>>,
    of_managed_cards: Option<Box<Verdict>>,
    by_scheduler: Option<Box<Verdict>>,
}

impl DeviceFits {
    /// Whether any of the claims asks for managed cards of the node, free or not.
    ///
    /// # Errors
    /// kube-scheduler would end its attempt with this error.
    pub fn asks_for_managed_cards(
        &mut self,
        demand: &Demand,
        node: &Node,
        index: NodeIndex,
        view: &mut View<'_>,
    ) -> Result<bool, String> {
        let (of, bytes) = self.of_node(index, view);
        if let Some(is_managed) = &of.is_managed {
            return Ok(is_managed.contains(&true));
        }
        let is_managed = fit::are_managed(demand, node, index, view).map_err(|error| error.to_string())?;
        let is_any = is_managed.contains(&true);
        *bytes += is_managed.len();
        of.is_managed = Some(is_managed.into());
        Ok(is_any)
    }

    /// Verdict with managed cards, for claims [asking](Self::asks_for_managed_cards) for managed cards.
    pub fn of_managed_cards(
        &mut self,
        demand: &Demand,
        node: &Node,
        index: NodeIndex,
        view: &mut View<'_>,
    ) -> &Verdict {
        let (of, bytes) = self.of_node(index, view);
        let is_managed = of.is_managed.as_deref().unwrap_or_default();
        of.of_managed_cards.get_or_insert_with(|| {
            let fit = fit::devices_of_managed_cards(demand, is_managed, node, index, view);
            let verdict: Verdict = fit.into();
            *bytes += verdict.bytes();
            Box::new(verdict)
        })
    }

    /// Verdict with the devices kube-scheduler would allocate.
    pub fn by_scheduler(
        &mut self,
        demand: &Demand,
        node: &Node,
        index: NodeIndex,
        view: &mut View<'_>,
    ) -> &Verdict {
        let (of, bytes) = self.of_node(index, view);
        of.by_scheduler.get_or_insert_with(|| {
            let verdict: Verdict = fit::devices_by_scheduler(demand, node, index, view).into();
            *bytes += verdict.bytes();
            Box::new(verdict)
        })
    }

    /// Cached results for the node's current generation, and the bytes of all.
    fn of_node(&mut self, index: NodeIndex, view: &View<'_>) -> (&mut OfNode, &mut usize) {
        let place = index as usize;
        if self.of_nodes.len() <= place {
            self.of_nodes.resize_with(view.fleet.len(), || None);
        }
        let generation = view.fleet.node(index).generation;
        let new = || OfNode { generation, is_managed: None, of_managed_cards: None, by_scheduler: None };
        let of = self.of_nodes[place].get_or_insert_with(new);
        if of.generation != generation {
            self.bytes -= of.bytes();
            *of = new();
        }
        (of, &mut self.bytes)
    }
}

impl Bytes for DeviceFits {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.of_nodes.capacity() * size_of::<Option<OfNode>>() + self.bytes
    }
}

impl OfNode {
    /// Bytes on the heap.
    fn bytes(&self) -> usize {
        let verdict = |verdict: &Option<Box<Verdict>>| verdict.as_ref().map_or(0, |verdict| verdict.bytes());
        let is_managed = self.is_managed.as_ref().map_or(0, |claims| claims.len());
        is_managed + verdict(&self.of_managed_cards) + verdict(&self.by_scheduler)
    }
}
