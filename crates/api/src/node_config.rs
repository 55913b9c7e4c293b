//! What a node offers of its cards, and in which sizes. By default whole cards and MIG partitions on demand; shares only
//! where they are asked for.

mod error;
mod partitioning;
mod sharing;

pub use error::NodeConfigError;
pub use partitioning::{Partitioning, PartitioningMode, PlacementOrder};
pub use sharing::{Mps, Sharing, TimeSliceInterval, TimeSlicing};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a node offers. Decoding is strict: an unknown field is an error, since a setting that is silently ignored is
/// noticed only when something is missing.
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

/// Configurations by name; a node's label selects its own.
///
/// ```yaml
/// apiVersion: gpu.tessera.dev/v1alpha1
/// kind: NodeConfigs
/// configs:
///   training: {}
///   inference:
///     wholeCards: false
///     partitioning: { profiles: [1g.10gb, 3g.40gb] }
///   notebooks:
///     sharing:
///       mps: { defaultShares: 4 }
///       timeSlicing: { replicas: 10, interval: Short }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeConfigs {
    configs: BTreeMap<String, NodeConfig>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self { whole_cards: true, partitioning: Partitioning::default(), sharing: Sharing::default() }
    }
}

impl NodeConfig {
    /// Decodes one configuration and checks it.
    ///
    /// # Errors
    /// [`NodeConfigError`], for an unknown field, another type or a value out of range.
    pub fn decode(fields: &Value) -> Result<Self, NodeConfigError> {
        // Derived decoding also accepts a list in place of an object.
        for path in ["", "/partitioning", "/sharing", "/sharing/mps", "/sharing/timeSlicing"] {
            if fields
                .pointer(path)
                .is_some_and(|part| !part.is_object() && (path.is_empty() || part.is_array()))
            {
                let part = path.trim_start_matches('/').replace('/', ".");
                let part = if part.is_empty() { "a configuration".to_owned() } else { part };
                return Err(NodeConfigError::Invalid(format!("{part} must be a mapping")));
            }
        }
        let config: Self = serde_json::from_value(fields.clone())
            .map_err(|error| NodeConfigError::Invalid(error.to_string().chars().take(300).collect()))?;
        config.check()?;
        Ok(config)
    }

    /// Checks what the types cannot express.
    ///
    /// # Errors
    /// [`NodeConfigError::Value`] for the first value that is out of range.
    pub fn check(&self) -> Result<(), NodeConfigError> {
        self.partitioning.check()?;
        self.sharing.check()
    }
}

impl NodeConfigs {
    /// The `apiVersion` of the object.
    pub const API_VERSION: &str = "gpu.tessera.dev/v1alpha1";
    /// The `kind` of the object.
    pub const KIND: &str = "NodeConfigs";

    /// Decodes an object.
    ///
    /// # Errors
    /// [`NodeConfigError`], for anything but `NodeConfigs` of this version in which every configuration is
    /// valid.
    pub fn decode(object: &Value) -> Result<Self, NodeConfigError> {
        let Value::Object(object) = object else { return Err(NodeConfigError::NoObject) };
        for (name, expected) in [("apiVersion", Self::API_VERSION), ("kind", Self::KIND)] {
            let found = object.get(name).cloned().unwrap_or_default();
            if found != *expected {
                let found = found.to_string().chars().take(64).collect();
                return Err(NodeConfigError::Kind { name, expected, found });
            }
        }
        if let Some(unknown) =
            object.keys().find(|name| !["apiVersion", "kind", "configs"].contains(&name.as_str()))
        {
            let unknown: String = unknown.chars().take(64).collect();
            return Err(NodeConfigError::Invalid(format!("unknown field {unknown:?}, expected configs")));
        }
        let Some(Value::Object(configs)) = object.get("configs") else {
            return Err(NodeConfigError::Invalid(
                "configs must be a mapping of configurations by name".to_owned(),
            ));
        };
        let named = |(name, fields): (&String, &Value)| match NodeConfig::decode(fields) {
            Ok(config) => Ok((name.clone(), config)),
            Err(error) => {
                Err(NodeConfigError::Config { name: name.chars().take(64).collect(), error: Box::new(error) })
            }
        };
        Ok(Self { configs: configs.iter().map(named).collect::<Result<_, _>>()? })
    }

    /// The configuration of that name.
    ///
    /// # Errors
    /// [`NodeConfigError::Unknown`], with the names there are.
    pub fn get(&self, name: &str) -> Result<&NodeConfig, NodeConfigError> {
        self.configs.get(name).ok_or_else(|| NodeConfigError::Unknown {
            name: name.chars().take(64).collect(),
            known: self.configs.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(fields: Value) -> Result<NodeConfig, NodeConfigError> {
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
            (json!({"sharing": {"timeSlicing": {"replicas": 1}}}), "sharing.timeSlicing.replicas"),
            (json!({"sharing": {"timeSlicing": {"replicas": 2, "interval": "short"}}}), "short"),
        ] {
            let error = decode(fields.clone()).unwrap_err().to_string();
            assert!(error.contains(part), "{fields}: {error}");
        }
        assert!(decode(json!(null)).is_err() && decode(json!([])).is_err());
    }

    #[test]
    fn configurations_by_name() {
        let object = |configs: Value| json!({"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "NodeConfigs", "configs": configs});
        let configs = NodeConfigs::decode(&object(json!({"a": {}, "b": {"wholeCards": false}}))).unwrap();
        assert!(!configs.get("b").unwrap().whole_cards);
        assert!(configs.get("c").unwrap_err().to_string().contains("a, b"));
        let error =
            NodeConfigs::decode(&object(json!({"slices": {"sharing": {"timeSlicing": {"replicas": 1}}}})));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("slices") && error.contains("sharing.timeSlicing.replicas"), "{error}");
        let mut more = object(json!({}));
        more["default"] = json!("a");
        for object in [
            json!(null),
            json!([]),
            json!({}),
            json!({"apiVersion": "v1", "kind": "NodeConfigs"}),
            object(json!([])),
            more,
        ] {
            assert!(NodeConfigs::decode(&object).is_err(), "{object}");
        }
    }
}
