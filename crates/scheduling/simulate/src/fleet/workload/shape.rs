//! Shapes of pods.

use k8s_openapi::api::core::v1::{Pod, PodResourceClaimStatus, PodSchedulingGate};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use tessera_api::gang::{GROUP_LABEL, GROUP_SIZE_LABEL};
use tessera_api::gpu_pool::{MOVABLE, MOVABLE_LABEL};
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_api::steering::GATE;

use super::Pods;
use crate::control::EPOCH;

/// Identical pods, with each pod's claims.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Namespace of the pods and their claims.
    pub namespace: String,
    /// The pod without name and status.
    pub pod: Pod,
    /// Names of the pod's claims, with their specs.
    pub claims: Vec<(String, ResourceClaimSpec)>,
}

impl Shape {
    /// The unallocated claims of a pod, as the claim controller creates them.
    pub(crate) fn claims_of(&self, pod: &Pods) -> Vec<ResourceClaim> {
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: pod.name.clone(),
            uid: pod.name.clone(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let claim = |(name, spec): &(String, ResourceClaimSpec)| {
            let name = claim_name(&pod.name, name);
            ResourceClaim {
                metadata: ObjectMeta {
                    namespace: Some(self.namespace.clone()),
                    uid: Some(name.clone()),
                    name: Some(name),
                    annotations: Some([(EPOCH_ANNOTATION.to_owned(), EPOCH.to_owned())].into()),
                    owner_references: Some(vec![owner.clone()]),
                    resource_version: Some("1".to_owned()),
                    ..ObjectMeta::default()
                },
                spec: Some(spec.clone()),
                status: None,
            }
        };
        self.claims.iter().map(claim).collect()
    }

    /// The pod, on no node. Pods of a gang have our gate.
    pub(crate) fn pod_of(&self, pod: &Pods, created: Timestamp) -> Pod {
        let mut object = self.pod.clone();
        let metadata = &mut object.metadata;
        metadata.namespace = Some(self.namespace.clone());
        (metadata.name, metadata.uid) = (Some(pod.name.clone()), Some(pod.name.clone()));
        metadata.creation_timestamp = Some(Time(created));
        if pod.is_movable {
            metadata.labels.get_or_insert_default().insert(MOVABLE_LABEL.to_owned(), MOVABLE.to_owned());
        }
        let is_movable = metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MOVABLE_LABEL));
        // The owner, for evicting pools: only replaced pods are evicted.
        if pod.gang.is_none() && (is_movable || pod.busy.is_some()) {
            metadata.owner_references = Some(vec![OwnerReference {
                api_version: "apps/v1".to_owned(),
                kind: "ReplicaSet".to_owned(),
                name: pod.name.clone(),
                uid: format!("owner-{}", pod.name),
                controller: Some(true),
                ..OwnerReference::default()
            }]);
        }
        let spec = object.spec.get_or_insert_default();
        spec.priority = Some(pod.priority);
        // No pod preempts another.
        spec.preemption_policy = Some("Never".to_owned());
        if let Some((gang, size)) = pod.gang {
            let labels = metadata.labels.get_or_insert_default();
            labels.insert(GROUP_LABEL.to_owned(), format!("gang-{gang}"));
            labels.insert(GROUP_SIZE_LABEL.to_owned(), size.to_string());
            spec.scheduling_gates = Some(vec![PodSchedulingGate { name: GATE.to_owned() }]);
        }
        let statuses = self.claims.iter().map(|(name, _)| PodResourceClaimStatus {
            name: name.clone(),
            resource_claim_name: Some(claim_name(&pod.name, name)),
        });
        let status = object.status.get_or_insert_default();
        status.phase = Some("Pending".to_owned());
        status.resource_claim_statuses = Some(statuses.collect());
        object
    }
}

/// The name of a claim of a pod.
fn claim_name(pod: &str, claim: &str) -> String {
    format!("{pod}-{claim}")
}
