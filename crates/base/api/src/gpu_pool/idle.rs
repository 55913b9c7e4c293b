use serde::{Deserialize, Serialize};

/// Key of the annotation of Pods, and of a pod template, about idle devices: with [`KEEP`] a pod keeps them, unless its pool says
/// `mayKeep: false`; [`RESUME`] is the other value.
pub const IDLE_ANNOTATION: &str = "gpu.tessera.dev/idle";

/// Value of [`IDLE_ANNOTATION`].
pub const KEEP: &str = "keep";

/// Value of [`IDLE_ANNOTATION`] with which a pod with [`IDLE_EVICTED_ANNOTATION`] gets devices as any other.
pub const RESUME: &str = "resume";

/// Key of the annotation of Pods made in place of an idle pod that was evicted for others: the uid of the evicted pod. Such a pod gets
/// devices only while nobody else waits for them. The controller writes the annotation, and a restart of it forgets nothing.
pub const IDLE_EVICTED_ANNOTATION: &str = "gpu.tessera.dev/idle-evicted";

/// When a claim counts as idle, and the consequence for its pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Idle {
    /// Seconds without use after which a claim is idle, counted from the start of its pod's containers at the earliest.
    #[cfg_attr(feature = "crd", schemars(range(min = 1, max = 2_592_000)))]
    pub after_seconds: u32,
    /// Percent of the multiprocessors that the claim holds: a look above ends the idle time. Memory does not count.
    #[cfg_attr(feature = "crd", schemars(range(min = 1, max = 100)))]
    pub below_percent: u32,
    /// The consequence.
    pub action: IdleAction,
    /// Seconds between the Event that announces an eviction and the eviction.
    #[cfg_attr(feature = "crd", schemars(range(min = 0, max = 86400)))]
    pub grace_seconds: u32,
    /// Whether pods with the annotation `gpu.tessera.dev/idle: keep` keep their devices. They are told all the same.
    pub may_keep: bool,
}

impl Default for Idle {
    fn default() -> Self {
        Idle {
            after_seconds: 7200,
            below_percent: 5,
            action: IdleAction::None,
            grace_seconds: 600,
            may_keep: true,
        }
    }
}

/// The consequence for pods whose claims are idle. Each includes the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum IdleAction {
    /// Nobody looks for idle claims.
    #[default]
    None,
    /// A condition of the claim's devices, and an Event on the pod.
    Tell,
    /// Pods are evicted, whatever their priority and team, when others wait that would fit without them. Managed pools only.
    WhenWanted,
    /// Pods outside of controllers, and of Jobs, are evicted even if nobody waits: others would be made anew at once.
    Evict,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::GpuPoolSpec;

    #[test]
    fn no_claim_is_idle_unless_the_pool_names_an_action() {
        let decode = |spec| GpuPoolSpec::decode(&spec).unwrap().idle;
        assert_eq!(decode(json!({})), None);
        assert_eq!(decode(json!({"idle": {}})), Some(Idle::default()));
        let idle = decode(json!({"idle": {"action": "Evict", "belowPercent": 1}})).unwrap();
        assert_eq!((idle.action, idle.after_seconds, idle.below_percent), (IdleAction::Evict, 7200, 1));
        // A plugin or controller of an earlier version reads specs and reports without the field.
        assert!(!serde_json::to_string(&GpuPoolSpec::default()).unwrap().contains("idle"));
    }
}
