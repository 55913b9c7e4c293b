use serde::{Deserialize, Serialize};

/// `status` of a GpuPool, written by the controller alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct GpuPoolStatus {
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Nodes with at least one card of the pool.
    pub nodes: u32,
    /// Cards of the pool.
    pub cards: u32,
    /// Devices published of these cards.
    pub offered: u32,
    /// Cards' worth that claims hold, with two decimals: a partition counts by its share of the card's memory.
    pub allocated: String,
    /// Cards' worth that is free, but on cards of which no device can be allocated, with two decimals.
    pub unallocatable: String,
    /// What waiting pods ask of the pool and do not get, by shape; the largest first, at most 16.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmet_demand: Vec<UnmetDemand>,
    /// See [`condition`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<condition::Condition>,
}

/// Pods that wait for the same things.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct UnmetDemand {
    /// What each of them asks for: `4 x gpu.tessera.dev`, by DeviceClass.
    pub shape: String,
    /// Number of pods.
    pub pods: u32,
}

/// Conditions of a GpuPool.
pub mod condition {
    pub use crate::condition::Condition;

    /// Type: the pool decides on at least one card, without errors.
    pub const READY: &str = "Ready";
    /// Reason of [`READY`]: all is well.
    pub const AS_WANTED: &str = "AsWanted";
    /// Reason of not [`READY`]: no node has the labels, or no card of them is selected.
    pub const NOTHING_SELECTED: &str = "NothingSelected";
    /// Reason of not [`READY`]: earlier pools decide on every selected card.
    pub const OUTRANKED: &str = "Outranked";
    /// Reason of not [`READY`]: the spec cannot be read, or the expression of `cards` fails.
    pub const SELECTOR_FAILS: &str = "SelectorFails";
    /// Reason of not [`READY`]: the layout cannot be found, or cards wait for the layout.
    pub const LAYOUT_NOT_APPLIED: &str = "LayoutNotApplied";
    /// Reason of not [`READY`]: running claims hold devices no longer offered.
    pub const WAITS_FOR_CLAIMS: &str = "WaitsForClaims";
}
