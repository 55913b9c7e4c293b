//! A pool's offer of its cards, with sizes. By default whole cards and MIG partitions on demand; shares only
//! on request. For cards without a pool see [`Offer::without_pool`].

mod error;
mod partitioning;
mod sharing;

pub use error::OfferError;
pub use partitioning::{OfHeldCards, Partitioning, PartitioningMode, PlacementOrder};
pub use sharing::{
    ConsumableShares, ConsumableSharesMode, Mps, OnOveruse, Sharing, TimeSliceInterval, TimeSlicing,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kubernetes::KubernetesVersion;

/// What is offered of a card. Decoding is strict: an unknown field is an error, since a setting that is silently ignored
/// is noticed only when something is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Offer {
    /// Whether cards are offered as a whole.
    pub whole_cards: bool,
    /// MIG partitions.
    pub partitioning: Partitioning,
    /// Shares of cards and partitions.
    pub sharing: Sharing,
    /// The MIG layout of the cards: a name in the mig-parted file of the chart's `migLayouts`. The cards are
    /// partitioned once and stay so. Absent: no layout, unless the node's label names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(length(min = 1, max = 253)))]
    pub layout: Option<String>,
    /// Key of a label of the node, such as `nvidia.com/mig.config`, whose value is the name of the layout. Where the
    /// node has the label, it outranks `layout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(length(min = 1, max = 317)))]
    pub layout_from_node_label: Option<String>,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            whole_cards: true,
            partitioning: Partitioning::default(),
            sharing: Sharing::default(),
            layout: None,
            layout_from_node_label: None,
        }
    }
}

impl Offer {
    /// The offer of cards without a GpuPool: whole cards, and partitions made on demand where their counters
    /// [cost kube-scheduler no time](KubernetesVersion::counters_cost_every_node) for other nodes.
    #[must_use]
    pub fn without_pool(version: KubernetesVersion) -> Self {
        let mut offer = Self::default();
        if version.counters_cost_every_node() {
            offer.partitioning.mode = PartitioningMode::None;
        }
        offer
    }

    /// Decodes an offer and checks it.
    ///
    /// # Errors
    /// [`OfferError`], for an unknown field, another type or a value out of range.
    pub fn decode(fields: &Value) -> Result<Self, OfferError> {
        // Derived decoding also accepts a list in place of an object.
        for path in [
            "",
            "/partitioning",
            "/sharing",
            "/sharing/mps",
            "/sharing/timeSlicing",
            "/sharing/consumableShares",
        ] {
            if fields
                .pointer(path)
                .is_some_and(|part| !part.is_object() && (path.is_empty() || part.is_array()))
            {
                let part = path.trim_start_matches('/').replace('/', ".");
                let part = if part.is_empty() { "an offer".to_owned() } else { part };
                return Err(OfferError::Invalid(format!("{part} must be a mapping")));
            }
        }
        let config: Self = serde_json::from_value(fields.clone())
            .map_err(|error| OfferError::Invalid(error.to_string().chars().take(300).collect()))?;
        config.check()?;
        Ok(config)
    }

    /// Whether partitions of a profile are made on demand. Profiles with attributes, as `1g.10gb+me`, must be named,
    /// for partitions or for shares of them: hardly anybody asks for such a profile, and each device costs kube-scheduler
    /// as much as any other.
    #[must_use]
    pub fn offers_partition(&self, profile: &str) -> bool {
        let is_in = |names: &[String]| names.iter().any(|name| name == profile);
        let has_attributes = profile.contains(['+', '-']);
        self.partitioning.mode == PartitioningMode::OnDemand
            && match &self.partitioning.profiles {
                Some(profiles) => is_in(profiles),
                None => {
                    !has_attributes || self.sharing.mps.as_ref().is_some_and(|mps| is_in(&mps.partitions))
                }
            }
    }

    /// Checks what the types cannot express.
    ///
    /// # Errors
    /// [`OfferError::Value`] for the first value that is out of range.
    pub fn check(&self) -> Result<(), OfferError> {
        self.partitioning.check()?;
        self.sharing.check()?;
        for (field, text) in [("layout", &self.layout), ("layoutFromNodeLabel", &self.layout_from_node_label)]
        {
            if text.as_deref().is_some_and(str::is_empty) {
                return Err(OfferError::Value {
                    field,
                    reason: "must not be empty; leave it out instead".to_owned(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(fields: Value) -> Result<Offer, OfferError> {
        Offer::decode(&fields)
    }

    #[test]
    fn nothing_said_is_whole_cards_and_partitions() {
        let config = decode(json!({})).unwrap();
        assert_eq!(config, Offer::default());
        assert!(config.whole_cards && config.partitioning.mode == PartitioningMode::OnDemand);
        assert_eq!(config.sharing, Sharing::default());
    }

    #[test]
    fn without_a_pool_partitions_need_1_37() {
        let mode = |version| Offer::without_pool(version).partitioning.mode;
        assert_eq!(Offer::without_pool(KubernetesVersion::V1_37), Offer::default());
        assert_eq!(mode(KubernetesVersion::V1_36_5), PartitioningMode::None);
        assert!(Offer::without_pool(KubernetesVersion::V1_36_3).whole_cards);
    }

    #[test]
    fn profiles_with_attributes_are_offered_where_they_are_named() {
        let offered = |fields: Value| {
            let offer = decode(fields).unwrap();
            ["1g.10gb", "1g.10gb+me", "1g.24gb-me"].map(|profile| offer.offers_partition(profile))
        };
        assert_eq!(offered(json!({})), [true, false, false]);
        assert_eq!(offered(json!({"partitioning": {"profiles": ["1g.10gb+me"]}})), [false, true, false]);
        assert_eq!(offered(json!({"sharing": {"mps": {"partitions": ["1g.24gb-me"]}}})), [true, false, true]);
        assert_eq!(offered(json!({"partitioning": {"mode": "None"}})), [false; 3]);
    }

    #[test]
    fn everything_said() {
        let config = decode(json!({
            "wholeCards": false,
            "partitioning": {"mode": "OnDemand", "profiles": ["1g.10gb"], "placementOrder": "HighestStart"},
            "sharing": {
                "mps": {"cards": false, "partitions": ["3g.40gb"], "defaultShares": 2, "maxClients": 16},
                "timeSlicing": {"replicas": 10, "interval": "Long"},
                "consumableShares": {"mode": "Shares", "shares": 4},
            },
        }))
        .unwrap();
        assert_eq!(config.sharing.time_slicing.as_ref().unwrap().interval, TimeSliceInterval::Long);
        assert_eq!(config.sharing.mps.as_ref().unwrap().default_shares, 2);
        assert_eq!(config.partitioning.placement_order, PlacementOrder::HighestStart);
        assert_eq!(decode(serde_json::to_value(&config).unwrap()), Ok(config));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, part) in [
            (json!({"sharng": {}}), "sharng"),
            (json!({"wholeCards": "yes"}), "yes"),
            (json!({"partitioning": {"mode": "Static"}}), "Static"),
            (json!({"partitioning": {"profiles": ["1g10gb"]}}), "1g10gb"),
            (json!({"partitioning": {"mode": "None", "profiles": ["1g.10gb"]}}), "partitioning.profiles"),
            (json!({"sharing": {"mps": {"defaultShares": 0}}}), "sharing.mps.defaultShares"),
            (json!({"sharing": {"mps": {"defaultShares": 101}}}), "sharing.mps.defaultShares"),
            (json!({"sharing": {"mps": {"maxClients": 0}}}), "sharing.mps.maxClients"),
            (json!({"sharing": {"mps": {"partitions": ["big"]}}}), "big"),
            (json!({"partitioning": []}), "partitioning must be a mapping"),
            (json!({"sharing": {"mps": [true]}}), "sharing.mps must be a mapping"),
            (json!({"sharing": {"mps": {"cards": false}}}), "sharing.mps"),
            (json!({"sharing": {"mps": {"staticPartitions": 1}}}), "invalid type"),
            (
                json!({"sharing": {"mps": {"cards": false, "partitions": ["1g.10gb"], "staticPartitions": true}}}),
                "sharing.mps.staticPartitions",
            ),
            (json!({"sharing": {"timeSlicing": {}}}), "replicas"),
            (json!({"sharing": {"consumableShares": []}}), "sharing.consumableShares must be a mapping"),
            (json!({"sharing": {"consumableShares": {"mode": "Some"}}}), "Some"),
            (json!({"sharing": {"consumableShares": {"mode": "Shares"}}}), "must be there with mode Shares"),
            (json!({"sharing": {"consumableShares": {"mode": "Shares", "shares": 1}}}), "from 2 to 1024"),
            (
                json!({"sharing": {"consumableShares": {"mode": "Memory", "shares": 4}}}),
                "is of mode Shares only",
            ),
            (json!({"sharing": {"timeSlicing": {"replicas": 1}}}), "sharing.timeSlicing.replicas"),
            (json!({"sharing": {"timeSlicing": {"replicas": 2, "interval": "short"}}}), "short"),
        ] {
            let error = decode(fields.clone()).unwrap_err().to_string();
            assert!(error.contains(part), "{fields}: {error}");
        }
        assert!(decode(json!(null)).is_err() && decode(json!([])).is_err());
    }
}
