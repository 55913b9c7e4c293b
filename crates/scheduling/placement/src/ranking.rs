//! Nodes ranked for one shape of demand, updated from the changes since the last query.

mod blocked;
mod side;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use tessera_cluster::{ObjectError, Objects};

use crate::demand::{Demand, Demands};
use crate::device_fits::DeviceFits;
use crate::fit;
use crate::fleet::NodeIndex;
use crate::kept::{Bytes, Kept};
use crate::shape::ShapeId;
use crate::verdict::Verdict;
use crate::view::View;
pub use side::Side;

/// Memory for rankings: some ten bytes per node for a shape fitting nowhere, some 200 for one fitting everywhere.
const MOST_BYTES: usize = 64 << 20;

/// Memory for device verdicts, some 100 bytes per node.
const MOST_BYTES_OF_DEVICES: usize = 32 << 20;

/// Rankings of the requested shapes.
#[derive(Debug)]
pub struct Rankings {
    by_shape: Kept<ShapeId, Ranking>,
    by_claims: Kept<ShapeId, DeviceFits>,
    demands: Demands,
    judged: u64,
}

/// Nodes for one shape of demand: those with managed cards allocated by us, then those with devices allocated by kube-scheduler.
#[derive(Debug, Default)]
pub struct Ranking {
    managed: Side,
    others: Side,
}

impl Default for Rankings {
    fn default() -> Self {
        Rankings {
            by_shape: Kept::of(MOST_BYTES),
            by_claims: Kept::of(MOST_BYTES_OF_DEVICES),
            demands: Demands::default(),
            judged: 0,
        }
    }
}

impl Rankings {
    /// The needs of this pod, kept for as long as the pod and its claims are unchanged.
    ///
    /// # Errors
    /// If the allocator cannot read a claim.
    pub fn demand(&mut self, objects: &Objects, pod: &Arc<Pod>) -> Result<Demand, ObjectError> {
        self.demands.of(objects, pod)
    }

    /// Nodes with managed cards for this demand, as of now.
    pub fn managed(&mut self, demand: &Demand, view: &mut View<'_>) -> &Side {
        &self.up_to_date(demand, view).0.managed
    }

    /// Nodes with managed cards for this demand, as of the last query, during a [`Statement`](crate::statement::Statement).
    pub(crate) fn kept(&mut self, demand: &Demand) -> &Side {
        &self.by_shape.get(&demand.shape).managed
    }

    /// Nodes on which kube-scheduler would find devices for this demand, as of now, except those able to serve the demand with
    /// managed cards.
    pub fn others(&mut self, demand: &Demand, view: &mut View<'_>) -> &Side {
        let (Ranking { managed, others }, devices, judged) = self.up_to_date(demand, view);
        *judged += others.update(demand, view, |index, view| {
            if managed.takes(index) { None } else { judge_by_scheduler(demand, index, devices, view) }
        });
        others
    }

    /// Number of shapes with a ranking.
    pub fn shapes(&self) -> usize {
        self.by_shape.len()
    }

    /// Number of times a node was judged for a shape.
    pub fn judged(&self) -> u64 {
        self.judged
    }

    /// Drops all rankings, after a change of classes or other objects possibly affecting every verdict.
    pub fn clear(&mut self) {
        self.by_shape.clear();
        self.by_claims.clear();
        self.demands.clear();
    }

    fn up_to_date(
        &mut self,
        demand: &Demand,
        view: &mut View<'_>,
    ) -> (&mut Ranking, &mut DeviceFits, &mut u64) {
        view.fleet.refresh(view.cluster, view.driver);
        let ranking = self.by_shape.get(&demand.shape);
        let devices = self.by_claims.get(&demand.claims_shape);
        let judge = |index, view: &mut View<'_>| judge_managed_cards(demand, index, devices, view);
        // Rankings are for the pods of all namespaces.
        let limit = view.limit.take();
        self.judged += ranking.managed.update(demand, view, judge);
        view.limit = limit;
        (ranking, devices, &mut self.judged)
    }
}

/// Verdict with managed cards; `None` if none of the node's, free or not, matches the demand.
fn judge_managed_cards(
    demand: &Demand,
    index: NodeIndex,
    devices: &mut DeviceFits,
    view: &mut View<'_>,
) -> Option<Verdict> {
    let node = view.object(index)?;
    match devices.asks_for_managed_cards(demand, node, index, view) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(error) => return Some(Verdict::Fatal(error)),
    }
    if let Some(reason) = fit::refused(demand, node) {
        return Some(Verdict::Blocked(reason));
    }
    let with_devices = devices.of_managed_cards(demand, node, index, view).clone();
    Some(judge_besides(demand, node, index, view, with_devices))
}

/// Verdict with the devices kube-scheduler would allocate; `None` if the Node object is gone.
fn judge_by_scheduler(
    demand: &Demand,
    index: NodeIndex,
    devices: &mut DeviceFits,
    view: &mut View<'_>,
) -> Option<Verdict> {
    let node = view.object(index)?;
    if let Some(reason) = fit::refused(demand, node) {
        return Some(Verdict::Blocked(reason));
    }
    let with_devices = devices.by_scheduler(demand, node, index, view).clone();
    Some(judge_besides(demand, node, index, view, with_devices))
}

/// Adds the pod's needs other than devices to the verdict.
fn judge_besides(
    demand: &Demand,
    node: &Node,
    index: NodeIndex,
    view: &mut View<'_>,
    with_devices: Verdict,
) -> Verdict {
    let Verdict::Takes(mut suits) = with_devices else { return with_devices };
    if let Some(reason) = fit::no_room(demand, node, view) {
        return Verdict::Blocked(reason);
    }
    view.fleet.make_plain(index, view.cluster, view.driver);
    suits.revalue(demand, index, view.fleet);
    Verdict::Takes(suits)
}

impl Bytes for Ranking {
    fn bytes(&self) -> usize {
        self.managed.bytes() + self.others.bytes()
    }
}
