//! Accessors for Pods.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use tessera_api::steering::GATE;

use crate::key::Key;

/// The scheduler of pods without a schedulerName.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Accessors of a Pod.
pub trait PodExt {
    /// Its namespace and name.
    fn key(&self) -> Key;

    /// Its scheduling gates.
    fn gates(&self) -> impl Iterator<Item = &str>;

    /// Whether the pod has the controller's gate.
    fn is_gated(&self) -> bool {
        self.gates().any(|gate| gate == GATE)
    }

    /// The node the pod is bound to.
    fn node_name(&self) -> Option<&str>;

    /// The node nominated for the pod.
    fn nominated_node(&self) -> Option<&str>;

    /// Its phase.
    fn phase(&self) -> Option<&str>;

    /// Whether all containers have ended for good.
    fn is_finished(&self) -> bool {
        matches!(self.phase(), Some("Succeeded" | "Failed"))
    }

    /// Whether the pod is finished or being deleted, so that its devices are free now or soon.
    fn has_ended(&self) -> bool;

    /// The scheduler's condition about the pod having no node.
    fn not_scheduled(&self) -> Option<&PodCondition>;

    /// Why the pod has no node, in its scheduler's words.
    fn scheduler_message(&self) -> Option<&str> {
        self.not_scheduled()?.message.as_deref()
    }

    /// Whether the scheduler tried the pod and found no node.
    fn is_unschedulable(&self) -> bool {
        self.not_scheduled().and_then(|condition| condition.reason.as_deref()) == Some("Unschedulable")
    }

    /// Whether the scheduler tried the pod and found no node, or failed to bind the pod to one.
    fn is_refused(&self) -> bool {
        let reason = self.not_scheduled().and_then(|condition| condition.reason.as_deref());
        matches!(reason, Some("Unschedulable" | "SchedulerError"))
    }

    /// Whether the scheduler found a node, and failed to bind the pod.
    fn is_unbindable(&self) -> bool {
        self.not_scheduled().and_then(|condition| condition.reason.as_deref()) == Some("SchedulerError")
    }

    /// The scheduler's condition: reason and message.
    fn verdict(&self) -> Option<String>;

    /// Names of the pod's ResourceClaims in its namespace, except claims made from templates.
    fn claim_names(&self) -> impl Iterator<Item = &str>;

    /// Whether the pod names this claim of its namespace.
    fn names_claim(&self, claim: &str) -> bool {
        self.claim_names().any(|name| name == claim)
    }

    /// Its priority.
    fn priority(&self) -> i32;

    /// Name of the pod's scheduler.
    fn scheduler_name(&self) -> &str;
}

impl PodExt for Pod {
    fn key(&self) -> Key {
        Key::from(&self.metadata)
    }

    fn gates(&self) -> impl Iterator<Item = &str> {
        let gates = self.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
        gates.map(|gate| gate.name.as_str())
    }

    fn node_name(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref()
    }

    fn nominated_node(&self) -> Option<&str> {
        self.status.as_ref()?.nominated_node_name.as_deref()
    }

    fn phase(&self) -> Option<&str> {
        self.status.as_ref()?.phase.as_deref()
    }

    fn has_ended(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || self.is_finished()
    }

    fn not_scheduled(&self) -> Option<&PodCondition> {
        scheduled(self).filter(|condition| condition.status == "False")
    }

    fn verdict(&self) -> Option<String> {
        let PodCondition { reason, message, .. } = scheduled(self)?;
        Some(format!("{}: {}", reason.as_deref()?, message.as_deref().unwrap_or_default()))
    }

    fn claim_names(&self) -> impl Iterator<Item = &str> {
        let references = self.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
        references.filter_map(|reference| reference.resource_claim_name.as_deref())
    }

    fn priority(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
    }

    fn scheduler_name(&self) -> &str {
        let name = self.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
        name.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_SCHEDULER)
    }
}

fn scheduled(pod: &Pod) -> Option<&PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "PodScheduled")
}
