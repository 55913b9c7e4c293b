use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// `status` of a GpuQuota, written by the controller alone. Sums only: users of other teams may read them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct GpuQuotaStatus {
    /// Generation of the spec evaluated here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Use by amount, in the order of the spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub amounts: Vec<AmountStatus>,
    /// Number of the team's pods waiting for devices.
    pub waiting: u32,
    /// The team's part of the use of all teams, each divided by its weight, in percent with one decimal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub share: String,
    /// GPU hours of the current period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<HoursStatus>,
    /// The last 12 periods, the latest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub periods: Vec<PeriodStatus>,
    /// Recent use in cards, as of `hours.asOf`, with six decimals: the mean of the past, in which a time counts half as much as one a half-life later.
    /// The least of it for its weight is served first. With prices a card of twice the price of the cheapest counts twice.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub recent_use: String,
    /// See [`condition`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Use of an amount: in cards with two decimals, or in bytes as a Kubernetes quantity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AmountStatus {
    /// Name of the amount.
    pub name: String,
    /// Guarantee; 0 if there is none.
    pub guaranteed: String,
    /// Limit, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Amount allocated to the team, with borrowed devices.
    pub used: String,
    /// Part of `used` beyond the guarantee.
    pub borrowed: String,
    /// Part of the guarantee used by other teams.
    pub lent: String,
}

/// GPU hours of a period until a time. Times are in RFC 3339, in UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HoursStatus {
    /// GPU hours, with two decimals.
    pub used: String,
    /// The same in seconds of a card: the next leader goes on from here.
    pub card_seconds: u64,
    /// Start of the period.
    pub since: String,
    /// Time until which the hours are counted, in RFC 3339.
    pub as_of: String,
    /// Seconds of a card by product name, as far as the card was known; at most 32 names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, u64>,
}

/// GPU hours of an ended period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PeriodStatus {
    /// Start of the period, in RFC 3339.
    pub since: String,
    /// Its end.
    pub until: String,
    /// GPU hours, with two decimals.
    pub used: String,
    /// The same in seconds of a card.
    pub card_seconds: u64,
    /// Seconds of a card by product name, as far as the card was known; at most 32 names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, u64>,
}

/// Conditions of a GpuQuota.
pub mod condition {
    pub use crate::condition::Condition;

    /// Type: the quota holds for at least one namespace, its own or a child's.
    pub const READY: &str = "Ready";
    /// Reason of [`READY`]: all is well.
    pub const IN_FORCE: &str = "InForce";
    /// Reason of not [`READY`]: no namespace is selected.
    pub const NOTHING_SELECTED: &str = "NothingSelected";
    /// Reason of not [`READY`]: the message names them. An expression that cannot be compiled limits nothing, a parent that does not
    /// exist neither.
    pub const MISTAKES: &str = "Mistakes";
    /// Reason of not [`READY`]: the GPU hours of the period are spent.
    pub const SPENT: &str = "Spent";
    /// Type: no other quota selects any of its namespaces.
    pub const EXCLUSIVE: &str = "Exclusive";
    /// Reason of [`EXCLUSIVE`].
    pub const NO_OVERLAP: &str = "NoOverlap";
    /// Reason of not [`EXCLUSIVE`]: the message says who decides.
    pub const OVERLAPS: &str = "Overlaps";
    /// Type: cards exist for the guarantees of all teams.
    pub const COVERED: &str = "Covered";
    /// Reason of [`COVERED`].
    pub const ENOUGH_CARDS: &str = "EnoughCards";
    /// Reason of not [`COVERED`]: the message says how much is guaranteed to all teams, and how much exists.
    pub const TOO_FEW_CARDS: &str = "TooFewCards";
    /// Type: no guaranteed device is held by a claim that the controller cannot take back: one on cards that are not managed.
    pub const ENFORCEABLE: &str = "Enforceable";
    /// Reason of [`ENFORCEABLE`].
    pub const NOTHING_HELD: &str = "NothingHeld";
    /// Reason of not [`ENFORCEABLE`]: the message says how much is held.
    pub const HELD: &str = "Held";
}
