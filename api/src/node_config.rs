//! What a node offers of its cards, and in which sizes. By default whole cards and MIG partitions on demand; shares only
//! where they are asked for.

mod error;
mod partitioning;
mod sharing;

pub use error::NodeConfigError;
pub use partitioning::{Partitioning, PartitioningMode, PlacementOrder};
pub use sharing::{Mps, Sharing, TimeSliceInterval, TimeSlicing};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a node offers. Decoding is strict: an unknown field is an error, since a setting that is silently left out is
/// found only when something is missing.
///
/// ```yaml
/// apiVersion: gpu.tessera.dev/v1alpha1
/// kind: NodeConfig
/// wholeCards: true
/// partitioning:
///   mode: OnDemand
///   profiles: [1g.10gb, 3g.40gb]
/// sharing:
///   mps: { defaultShares: 4 }
///   timeSlicing: { replicas: 10, interval: Short }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeConfig {
    /// Whether cards are offered as a whole.
    pub whole_cards: bool,
    /// MIG partitions.
    pub partitioning: Partitioning,
    /// Shares of cards and partitions.
    pub sharing: Sharing,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self { whole_cards: true, partitioning: Partitioning::default(), sharing: Sharing::default() }
    }
}

impl NodeConfig {
    /// The `apiVersion` of the object.
    pub const API_VERSION: &str = "gpu.tessera.dev/v1alpha1";
    /// The `kind` of the object.
    pub const KIND: &str = "NodeConfig";

    /// Decodes an object and checks it.
    ///
    /// # Errors
    /// [`NodeConfigError`], for anything but a `NodeConfig` of this version with values in range.
    pub fn decode(object: &Value) -> Result<Self, NodeConfigError> {
        let Value::Object(object) = object else { return Err(NodeConfigError::NoObject) };
        for (name, expected) in [("apiVersion", Self::API_VERSION), ("kind", Self::KIND)] {
            let found = object.get(name).cloned().unwrap_or_default();
            if found != *expected {
                let found = found.to_string().chars().take(64).collect();
                return Err(NodeConfigError::Kind { name, expected, found });
            }
        }
        let mut fields = object.clone();
        fields.remove("apiVersion");
        fields.remove("kind");
        let config: Self = serde_json::from_value(Value::Object(fields))
            .map_err(|error| NodeConfigError::Invalid(error.to_string().chars().take(300).collect()))?;
        config.check()?;
        Ok(config)
    }

    /// Checks what types can't say.
    ///
    /// # Errors
    /// [`NodeConfigError::Value`] for the first value that is out of range.
    pub fn check(&self) -> Result<(), NodeConfigError> {
        self.partitioning.check()?;
        self.sharing.check()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(mut fields: Value) -> Result<NodeConfig, NodeConfigError> {
        fields["apiVersion"] = json!("gpu.tessera.dev/v1alpha1");
        fields["kind"] = json!("NodeConfig");
        NodeConfig::decode(&fields)
    }

    #[test]
    fn nothing_said_is_whole_cards_and_partitions() {
        let config = decode(json!({})).unwrap();
        assert_eq!(config, NodeConfig::default());
        assert!(config.whole_cards && config.partitioning.mode == PartitioningMode::OnDemand);
        assert_eq!(config.sharing, Sharing { mps: None, time_slicing: None });
    }

    #[test]
    fn everything_said() {
        let config = decode(json!({
            "wholeCards": false,
            "partitioning": {"mode": "OnDemand", "profiles": ["1g.10gb"], "placementOrder": "HighestStart"},
            "sharing": {
                "mps": {"cards": false, "partitions": ["3g.40gb"], "defaultShares": 2, "maxClients": 16},
                "timeSlicing": {"replicas": 10, "interval": "Long"},
            },
        }))
        .unwrap();
        assert_eq!(config.sharing.time_slicing.as_ref().unwrap().interval, TimeSliceInterval::Long);
        assert_eq!(config.sharing.mps.as_ref().unwrap().default_shares, 2);
        assert_eq!(config.partitioning.placement_order, PlacementOrder::HighestStart);
        let mut again = serde_json::to_value(&config).unwrap();
        again["apiVersion"] = json!(NodeConfig::API_VERSION);
        again["kind"] = json!(NodeConfig::KIND);
        assert_eq!(NodeConfig::decode(&again), Ok(config));
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
            (json!({"sharing": {"mps": {"cards": false}}}), "sharing.mps"),
            (json!({"sharing": {"timeSlicing": {}}}), "replicas"),
            (json!({"sharing": {"timeSlicing": {"replicas": 1}}}), "sharing.timeSlicing.replicas"),
            (json!({"sharing": {"timeSlicing": {"replicas": 2, "interval": "short"}}}), "short"),
        ] {
            let error = decode(fields.clone()).unwrap_err().to_string();
            assert!(error.contains(part), "{fields}: {error}");
        }
        for object in [json!(null), json!([]), json!({}), json!({"apiVersion": "v1", "kind": "NodeConfig"})] {
            assert!(NodeConfig::decode(&object).is_err(), "{object}");
        }
    }
}
