//! The nodes for one shape of demand, best first, kept up to date by what changed since the last question.

mod blocked;
mod side;

use k8s_openapi::api::core::v1::Node;

use crate::demand::Demand;
use crate::device_fits::DeviceFits;
use crate::fit;
use crate::fleet::NodeIndex;
use crate::kept::{Bytes, Kept};
use crate::shape::ShapeId;
use crate::verdict::Verdict;
use crate::view::View;
pub use side::Side;

/// Memory for rankings: of a shape that fits nowhere some ten bytes a node, of one that fits everywhere some 200.
const MOST_BYTES: usize = 64 << 20;

/// Memory for what claims get of nodes, some 100 bytes a node.
const MOST_BYTES_OF_DEVICES: usize = 32 << 20;

/// The rankings of the shapes that are asked for.
#[derive(Debug)]
pub struct Rankings {
    by_shape: Kept<ShapeId, Ranking>,
    by_claims: Kept<ShapeId, DeviceFits>,
    judged: u64,
}

/// The nodes for one shape of demand: those where we would allocate devices of managed cards, then those where kube-scheduler would.
#[derive(Debug, Default)]
pub struct Ranking {
    managed: Side,
    others: Side,
}

impl Default for Rankings {
    fn default() -> Self {
        Rankings { by_shape: Kept::of(MOST_BYTES), by_claims: Kept::of(MOST_BYTES_OF_DEVICES), judged: 0 }
    }
}

impl Rankings {
    /// The nodes with managed cards for this demand, as of now.
    pub fn managed(&mut self, demand: &Demand, view: &mut View<'_>) -> &Side {
        &self.up_to_date(demand, view).0.managed
    }

    /// The nodes on which kube-scheduler would find devices for this demand, as of now, but for those with managed cards that we would
    /// give it.
    pub fn others(&mut self, demand: &Demand, view: &mut View<'_>) -> &Side {
        let (Ranking { managed, others }, devices, judged) = self.up_to_date(demand, view);
        *judged += others.update(demand, view, |index, view| {
            if managed.takes(index) { None } else { judge_by_scheduler(demand, index, devices, view) }
        });
        others
    }

    /// Number of shapes of which nodes are known.
    pub fn shapes(&self) -> usize {
        self.by_shape.len()
    }

    /// How often a node was judged for a shape.
    pub fn judged(&self) -> u64 {
        self.judged
    }

    /// Classes or other objects changed on which every answer may depend.
    pub fn clear(&mut self) {
        self.by_shape.clear();
        self.by_claims.clear();
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
        self.judged += ranking.managed.update(demand, view, judge);
        (ranking, devices, &mut self.judged)
    }
}

/// How the node suits with devices of its managed cards; `None` where it has none that is asked for, free or not.
fn judge_managed_cards(
    demand: &Demand,
    index: NodeIndex,
    devices: &mut DeviceFits,
    view: &mut View<'_>,
) -> Option<Verdict> {
    let node = view.object(index)?;
    match devices.asks_for_managed_cards(demand, index, view) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(error) => return Some(Verdict::Fatal(error)),
    }
    if let Some(reason) = fit::refused(demand, node) {
        return Some(Verdict::Blocked(reason));
    }
    let with_devices = devices.of_managed_cards(demand, index, view).clone();
    Some(judge_besides(demand, node, index, view, with_devices))
}

/// How the node suits with the devices that kube-scheduler would find there; `None` where it is gone.
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
    let with_devices = devices.by_scheduler(demand, index, view).clone();
    Some(judge_besides(demand, node, index, view, with_devices))
}

/// The same with what the pod needs besides devices.
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
