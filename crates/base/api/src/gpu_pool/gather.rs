use serde::{Deserialize, Serialize};

/// Key of the label of Pods, and of a pod template, by which the controller may move the pod: [`MOVABLE`] is its only value.
pub const MOVABLE_LABEL: &str = "gpu.tessera.dev/movable";

/// Value of [`MOVABLE_LABEL`].
pub const MOVABLE: &str = "true";

/// Whether pods make room for a pod or gang that has waited for `reserveAfterSeconds`, by an eviction, where their successors have room
/// elsewhere. Managed pools without a strict queue only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Gather {
    /// Who moves.
    pub mode: GatherMode,
    /// Most pods moved in an hour.
    #[cfg_attr(feature = "crd", schemars(range(min = 1, max = 1000)))]
    pub per_hour: u32,
    /// Seconds for which a pod must have run before it moves.
    #[cfg_attr(feature = "crd", schemars(range(min = 60, max = 2_592_000)))]
    pub min_runtime_seconds: u32,
}

impl Default for Gather {
    fn default() -> Self {
        Gather { mode: GatherMode::None, per_hour: 4, min_runtime_seconds: 1800 }
    }
}

/// Who moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum GatherMode {
    /// Nobody.
    #[default]
    None,
    /// Pods with the label `gpu.tessera.dev/movable: "true"`, of a controller that makes them anew.
    Move,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::GpuPoolSpec;

    #[test]
    fn nobody_moves_unless_the_pool_says_so() {
        let decode = |spec| GpuPoolSpec::decode(&spec).unwrap().placement.gather;
        assert_eq!(decode(json!({})), None);
        let gather = decode(json!({"placement": {"gather": {"mode": "Move", "perHour": 2}}})).unwrap();
        assert_eq!((gather.mode, gather.per_hour, gather.min_runtime_seconds), (GatherMode::Move, 2, 1800));
        assert_eq!(Gather::default().mode, GatherMode::None);
        // A plugin or controller of an earlier version reads specs and reports without the field.
        assert!(!serde_json::to_string(&GpuPoolSpec::default()).unwrap().contains("gather"));
    }
}
