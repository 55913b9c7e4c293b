//! What claims get of the devices of each node. Pods that differ in what they need besides share it: finding devices takes longer than
//! all else, and only nodes that changed are asked again.

use std::collections::HashMap;

use tessera_allocator::error::AllocateError;

use crate::blocked::Blocked;
use crate::demand::Demand;
use crate::fleet::NodeIndex;
use crate::ranking::{self, Ranked, View, Way};

/// Claims that are kept; which go says [`ranking::to_drop`].
const MOST_CLAIMS: usize = 256;

/// What claims get, by what they ask for.
#[derive(Debug, Default)]
pub(crate) struct DeviceFits {
    by_claims: HashMap<(Way, String), OfClaims>,
    questions: u64,
}

/// What the claims of one kind of pod get.
#[derive(Debug, Default)]
pub(crate) struct OfClaims {
    of_nodes: Vec<Option<OfNode>>,
    asked_at: u64,
}

/// What claims get of a node.
#[derive(Debug)]
struct OfNode {
    /// See [`crate::fleet::FleetNode::generation`].
    generation: u64,
    /// By claim: whether this controller would allocate it.
    is_managed: Vec<bool>,
    /// `None` until somebody asks.
    found: Option<Found>,
}

/// A score without what the pod needs besides, why there are too few devices, or the error that ends kube-scheduler's attempt.
pub(crate) type Found = Result<Result<Ranked, Blocked>, String>;

impl DeviceFits {
    /// What the claims of this demand get.
    pub fn of(&mut self, demand: &Demand, way: Way) -> &mut OfClaims {
        self.questions += 1;
        let key = (way, demand.claims_shape.clone());
        if self.by_claims.len() >= MOST_CLAIMS && !self.by_claims.contains_key(&key) {
            let asked = self.by_claims.iter().map(|(key, of)| (key, of.asked_at));
            if let Some(dropped) = ranking::to_drop(asked, self.questions).cloned() {
                self.by_claims.remove(&dropped);
            }
        }
        let of = self.by_claims.entry(key).or_default();
        of.asked_at = self.questions;
        of
    }

    /// Objects changed on which every answer may depend.
    pub fn clear(&mut self) {
        self.by_claims.clear();
    }
}

impl OfClaims {
    /// Whether any of the claims asks for what would be allocated in this way on the node, which exists.
    ///
    /// # Errors
    /// kube-scheduler would end its attempt with this error.
    pub fn asks_for_any(
        &mut self,
        demand: &Demand,
        way: Way,
        index: NodeIndex,
        view: &mut View<'_>,
    ) -> Result<bool, AllocateError> {
        let place = index as usize;
        if self.of_nodes.len() <= place {
            self.of_nodes.resize_with(view.fleet.len(), || None);
        }
        let generation = view.fleet.node(index).generation;
        let is_any = |is_managed: &[bool]| way == Way::Native || is_managed.contains(&true);
        if let Some(known) = self.of_nodes[place].as_ref().filter(|known| known.generation == generation) {
            return Ok(is_any(&known.is_managed));
        }
        self.of_nodes[place] = None;
        let is_managed = ranking::are_managed(demand, way, index, view)?;
        let is_any = is_any(&is_managed);
        self.of_nodes[place] = Some(OfNode { generation, is_managed, found: None });
        Ok(is_any)
    }

    /// What they get, after [`Self::asks_for_any`].
    pub fn found(
        &mut self,
        demand: &Demand,
        way: Way,
        index: NodeIndex,
        view: &mut View<'_>,
    ) -> Option<&Found> {
        let known = self.of_nodes.get_mut(index as usize)?.as_mut()?;
        Some(known.found.get_or_insert_with(|| {
            let fit = ranking::fit_devices(demand, way, index, known.is_managed.clone(), view);
            let fit = fit.map_err(|error| error.to_string())?;
            Ok(fit.map(|fit| fit.ranked()))
        }))
    }
}
