//! `GpuPool`: an administrator's choice of the offer of cards and of their allocator.

mod gather;
mod idle;
mod names;
mod resolve;
mod status;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::label_selector::LabelSelector;
use crate::offer::{Offer, OfferError};

pub use gather::{Gather, GatherMode, MOVABLE, MOVABLE_LABEL};
pub use idle::{IDLE_ANNOTATION, IDLE_EVICTED_ANNOTATION, Idle, IdleAction, KEEP, RESUME};
pub use resolve::precedence;
pub use status::{GpuPoolStatus, UnmetDemand, condition};

/// `spec` of a GpuPool: the cards that it selects, and what is offered of them. Decoding is strict, as of [`Offer`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(
    feature = "crd",
    schemars(extend("x-kubernetes-validations" = [{
        "rule": "self.placement.topology != 'Required' || self.allocation == 'Managed'",
        "message": "placement.topology Required needs allocation Managed: only who allocates can wait for the best cards",
    }, {
        "rule": "!has(self.placement.spreadTopologyKey) || self.placement.strategy == 'Spread'",
        "message": "placement.spreadTopologyKey needs placement.strategy Spread",
    }, {
        "rule": "!has(self.offer.partitioning.ofHeldCards) || self.offer.partitioning.ofHeldCards != 'First' || self.allocation == 'Native'",
        "message": "offer.partitioning.ofHeldCards First needs allocation Native: the controller plans with all partitions",
    }, {
        "rule": "!has(self.idle) || self.idle.action != 'WhenWanted' || self.allocation == 'Managed'",
        "message": "idle.action WhenWanted needs allocation Managed: only who allocates knows who waits",
    }, {
        "rule": "!has(self.placement.gather) || self.placement.gather.mode != 'Move' || (self.allocation == 'Managed' && (!has(self.placement.queue) || self.placement.queue != 'Strict'))",
        "message": "placement.gather.mode Move needs allocation Managed and no queue Strict: only who allocates can keep places, and in a strict queue those who moved would wait for theirs behind others",
    }]))
)]
#[cfg_attr(
    feature = "crd",
    kube(
        group = "gpu.tessera.dev",
        version = "v1alpha1",
        kind = "GpuPool",
        plural = "gpupools",
        shortname = "gpool",
        category = "tessera",
        status = "GpuPoolStatus",
        doc = "Which GPUs are offered how, and who allocates them.",
        validation = ("size(self.metadata.name) <= 63", "a GpuPool's name has at most 63 characters: it is an attribute of devices"),
        printcolumn(json_path = ".spec.allocation", name = "Allocation", type_ = "string"),
        printcolumn(json_path = ".spec.priority", name = "Priority", type_ = "integer"),
        printcolumn(json_path = ".status.nodes", name = "Nodes", type_ = "integer"),
        printcolumn(json_path = ".status.cards", name = "Cards", type_ = "integer"),
        printcolumn(json_path = ".status.allocated", name = "Allocated", type_ = "string"),
        printcolumn(json_path = ".status.unallocatable", name = "Unallocatable", type_ = "string"),
        printcolumn(json_path = r#".status.conditions[?(@.type=="Ready")].reason"#, name = "State", type_ = "string"),
        printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GpuPoolSpec {
    /// Of several pools that select a card, the one with the highest priority decides; then the older, then the first by
    /// name.
    pub priority: i32,
    /// The nodes, by their labels. Absent or empty: all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// A CEL expression over a whole card, as in a DeviceClass's selectors: `device.attributes["gpu.tessera.dev"]…`.
    /// Absent: all cards of the nodes. A card for which it fails belongs to no pool by this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(length(min = 1, max = 10240)))]
    pub cards: Option<String>,
    /// What is offered of the cards.
    pub offer: Offer,
    /// Who allocates claims for them.
    pub allocation: Allocation,
    /// How the controller chooses among nodes, and among cards where it allocates. Without meaning where the allocation is
    /// Native.
    pub placement: Placement,
    /// Limits of claims that hold devices without use of their multiprocessors. Absent: nobody looks for such claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
}

/// Who allocates claims for a pool's cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum Allocation {
    /// kube-scheduler, alone.
    #[default]
    Native,
    /// kube-scheduler, on the node that the controller proposes.
    Steered,
    /// The controller. All devices of the cards have the taint [`crate::managed::TAINT_KEY`], with which kube-scheduler
    /// allocates none of them.
    Managed,
}

/// How the controller chooses among nodes, and among cards where it allocates.
///
/// Fields that came after the first release of node reports are left out where they are as without them: a controller of an
/// earlier version would refuse them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Placement {
    /// What to prefer among nodes that suit equally.
    pub strategy: Strategy,
    /// With `Spread`: key of a label of nodes, such as `topology.kubernetes.io/zone`. Nodes come first of whose value least is
    /// allocated, of all nodes with it together; among them, the node with least. Absent: each node counts by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(length(min = 1, max = 317)))]
    pub spread_topology_key: Option<String>,
    /// Whether the connections between cards count.
    pub topology: TopologyPolicy,
    /// Whether pods may pass others that have waited longer, in a managed pool.
    #[serde(skip_serializing_if = "is_best_effort")]
    pub queue: QueuePolicy,
    /// Seconds for which the first gang of a managed pool must have waited before nodes are kept for it.
    #[serde(skip_serializing_if = "is_default_reserve_after")]
    #[cfg_attr(feature = "crd", schemars(range(min = 1, max = 86400)))]
    pub reserve_after_seconds: u32,
    /// Pods that make room by moving. Absent: nobody moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gather: Option<Gather>,
}

/// Default seconds for which a gang waits before nodes are kept for the gang.
pub const RESERVE_AFTER_SECONDS: u32 = 600;

impl Default for Placement {
    fn default() -> Self {
        Placement {
            strategy: Strategy::default(),
            spread_topology_key: None,
            topology: TopologyPolicy::default(),
            queue: QueuePolicy::default(),
            reserve_after_seconds: RESERVE_AFTER_SECONDS,
            gather: None,
        }
    }
}

/// Whether pods may pass others that have waited longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum QueuePolicy {
    /// What fits now gets its devices, whoever else waits.
    #[default]
    BestEffort,
    /// Nobody passes the first that waits: of the highest priority, then the one that was complete first.
    Strict,
}

fn is_best_effort(queue: &QueuePolicy) -> bool {
    *queue == QueuePolicy::BestEffort
}

fn is_default_reserve_after(seconds: &u32) -> bool {
    *seconds == RESERVE_AFTER_SECONDS
}

/// What to prefer among nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum Strategy {
    /// Nodes that lose least by it, so that large requests still fit elsewhere.
    #[default]
    Pack,
    /// Nodes with the least allocated.
    Spread,
}

/// Whether the connections between cards count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum TopologyPolicy {
    /// The best connected cards come first.
    #[default]
    Preferred,
    /// The best connected cards that the machine has, or none: it never settles for less, and the pod waits for them. Only
    /// where the allocation is [`Allocation::Managed`].
    Required,
    /// Connections do not count.
    Ignored,
}

impl GpuPoolSpec {
    /// Decodes a `spec` and checks it.
    ///
    /// # Errors
    /// [`OfferError`], for an unknown field, another type or a value out of range.
    pub fn decode(fields: &Value) -> Result<Self, OfferError> {
        let offer = fields.get("offer").map(Offer::decode).transpose()?;
        let spec: Self = serde_json::from_value(fields.clone())
            .map_err(|error| OfferError::Invalid(error.to_string().chars().take(300).collect()))?;
        Ok(Self { offer: offer.unwrap_or_default(), ..spec })
    }

    /// Whether a node with these labels belongs to the pool.
    #[must_use]
    pub fn selects_node(&self, labels: &BTreeMap<String, String>) -> bool {
        self.node_selector.as_ref().is_none_or(|selector| selector.matches(labels))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_has_a_default() {
        let spec = GpuPoolSpec::decode(&json!({})).unwrap();
        assert_eq!(spec, GpuPoolSpec::default());
        assert!(spec.selects_node(&BTreeMap::new()) && spec.offer.whole_cards);
        assert_eq!((spec.allocation, spec.placement.strategy), (Allocation::Native, Strategy::Pack));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, part) in [
            (json!({"prority": 1}), "prority"),
            (json!({"offer": {"wholeCard": true}}), "wholeCard"),
            (json!({"offer": {"sharing": {"timeSlicing": {"replicas": 1}}}}), "replicas"),
            (json!({"offer": {"layout": ""}}), "layout"),
            (json!({"allocation": "Magic"}), "Magic"),
            (json!({"placement": {"strategy": "pack"}}), "pack"),
            (json!({"nodeSelector": {"matchLabel": {}}}), "matchLabel"),
            (json!({"idle": {"action": "Kill"}}), "Kill"),
            (json!({"idle": {"afterMinutes": 1}}), "afterMinutes"),
        ] {
            let error = GpuPoolSpec::decode(&fields).unwrap_err().to_string();
            assert!(error.contains(part), "{fields}: {error}");
        }
    }
}
