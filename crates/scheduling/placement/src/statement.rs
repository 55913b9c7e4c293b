//! Trials on the index of held devices and room, undone as a whole or back to a checkpoint. After KAI-Scheduler's
//! `framework/statement.go`.
//!
//! Guarantees: after a statement ends, devices and room in use are as before, and so are the nodes' generations with everything
//! computed for them. Rankings must not be queried during a statement, as they follow the log of changes.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimStatus};
use tessera_cluster::subject::Wanted;
use tessera_cluster::{Asker, Cluster, Hold, Holder, Key};

use crate::demand::Demand;
use crate::fit::{self, Fit, Takes};
use crate::fleet::trial::BeforeTrial;
use crate::fleet::{Fleet, NodeIndex};
use crate::take_limit::TakeLimit;
use crate::time::Time;
use crate::value::RequestMix;
use crate::view::View;

/// The state on which trials are made. See [`View`] for the fields.
pub struct Base<'s> {
    /// Kubernetes objects, and the held devices and room.
    pub cluster: &'s mut Cluster,
    /// Nodes with our cards.
    pub fleet: &'s mut Fleet,
    /// Compiled selectors.
    pub asker: &'s mut Asker,
    /// Name of our driver.
    pub driver: &'s str,
    /// Managed cards tainted up to this time may be allocated.
    pub handed_over: Option<Time>,
    /// Mix of requested partitions.
    pub mix: &'s RequestMix,
    /// Limits on what the group's namespace may take, with the trials counted. See [`View::limit`].
    pub limit: Option<&'s TakeLimit>,
}

/// Trials in progress. Dropping it undoes all of them.
pub struct Statement<'s> {
    base: Base<'s>,
    undo: Vec<Undo>,
}

/// A point to [roll back](Statement::rollback) to.
#[derive(Debug, Clone, Copy)]
pub struct Checkpoint(usize);

enum Undo {
    Hold(Holder, Option<Hold>),
    Node(BeforeTrial),
}

impl<'s> Statement<'s> {
    /// A statement without trials.
    pub fn new(base: Base<'s>) -> Self {
        Statement { base, undo: Vec::new() }
    }

    /// Whether nothing is being tried.
    pub fn is_empty(&self) -> bool {
        self.undo.is_empty()
    }

    /// Kubernetes objects, and the held devices and room with the trials.
    pub fn cluster(&self) -> &Cluster {
        self.base.cluster
    }

    /// Nodes with our cards.
    pub fn fleet(&self) -> &Fleet {
        self.base.fleet
    }

    /// Name of our driver.
    pub fn driver(&self) -> &'s str {
        self.base.driver
    }

    /// State for judging nodes, with the trials.
    pub fn view(&mut self) -> View<'_> {
        let Base { cluster, fleet, asker, driver, handed_over, mix, limit } = &mut self.base;
        View { cluster, fleet, asker, driver, handed_over: *handed_over, mix, limit: *limit }
    }

    /// The current point.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint(self.undo.len())
    }

    /// Undoes the trials since this point.
    pub fn rollback(&mut self, to: Checkpoint) {
        while self.undo.len() > to.0 {
            match self.undo.pop() {
                Some(Undo::Hold(holder, hold)) => drop(self.base.cluster.try_hold(&holder, hold)),
                Some(Undo::Node(before)) => self.base.fleet.end_trial(before),
                None => {}
            }
        }
    }

    /// Counts these pods and claims as gone.
    pub fn set_aside(&mut self, pods: &[Key], claims: &[Key]) {
        let pods = pods.iter().cloned().map(Holder::Pod);
        for holder in pods.chain(claims.iter().cloned().map(Holder::Claim)) {
            self.try_hold(holder, None);
        }
    }

    /// The devices for the pod on the node, with the trials.
    pub fn fit(&mut self, demand: &Demand, index: NodeIndex) -> Fit {
        fit::of_managed_cards(demand, index, &mut self.view())
    }

    /// Counts the pod as on the node with these devices. `false` where that cannot be: the Node object is gone, or an allocation has a
    /// capacity without a valid quantity.
    pub fn place(&mut self, key: &Key, pod: &Pod, demand: &Demand, index: NodeIndex, takes: &Takes) -> bool {
        let node = self.base.fleet.node(index).name.clone();
        let Some(object) = self.base.cluster.objects().node(&node) else { return false };
        let (wanted, _) = demand.on(object);
        let claims = with_devices(&wanted, takes.allocations.clone());
        let Ok(holds) = Cluster::holds_on(&node, key, pod, &claims) else { return false };
        for (holder, hold) in holds {
            self.try_hold(holder, Some(hold));
        }
        true
    }

    fn try_hold(&mut self, holder: Holder, hold: Option<Hold>) {
        let Some(replaced) = self.base.cluster.try_hold(&holder, hold) else { return };
        self.undo.push(Undo::Hold(holder, replaced.before));
        for node in &replaced.nodes {
            if let Some(index) = self.base.fleet.find(node) {
                self.undo.push(Undo::Node(self.base.fleet.begin_trial(index)));
            }
        }
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        self.rollback(Checkpoint(0));
    }
}

/// The claims with these allocations.
pub fn with_devices(wanted: &[&Wanted], allocations: Vec<AllocationResult>) -> Vec<ResourceClaim> {
    let claims = wanted.iter().zip(allocations).map(|(wanted, allocation)| ResourceClaim {
        status: Some(ResourceClaimStatus { allocation: Some(allocation), ..Default::default() }),
        ..wanted.claim.clone()
    });
    claims.collect()
}
