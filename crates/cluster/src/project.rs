//! Reduces objects to what is needed: of a pod of 10 KiB, a few lines matter here.

use k8s_openapi::api::core::v1::{
    Container, Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus, ResourceRequirements,
};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

fn metadata(metadata: ObjectMeta) -> ObjectMeta {
    let ObjectMeta { name, namespace, uid, labels, creation_timestamp, deletion_timestamp, .. } = metadata;
    ObjectMeta {
        name,
        namespace,
        uid,
        labels,
        creation_timestamp,
        deletion_timestamp,
        ..ObjectMeta::default()
    }
}

/// The part of a node that decides whether it takes a pod.
pub(crate) fn node(node: Node) -> Node {
    Node {
        metadata: metadata(node.metadata),
        spec: node.spec.map(|spec| NodeSpec {
            taints: spec.taints,
            unschedulable: spec.unschedulable,
            ..NodeSpec::default()
        }),
        status: node
            .status
            .map(|status| NodeStatus { allocatable: status.allocatable, ..NodeStatus::default() }),
    }
}

/// The part of a pod that says where it may run, its claims, and kube-scheduler's conditions.
pub(crate) fn pod(pod: Pod) -> Pod {
    let container = |container: Container| Container {
        name: container.name,
        resources: container.resources.map(|resources| ResourceRequirements {
            limits: resources.limits,
            requests: resources.requests,
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    };
    Pod {
        metadata: metadata(pod.metadata),
        spec: pod.spec.map(|spec| PodSpec {
            affinity: spec.affinity,
            containers: spec.containers.into_iter().map(container).collect(),
            init_containers: spec.init_containers.map(|all| all.into_iter().map(container).collect()),
            node_name: spec.node_name,
            node_selector: spec.node_selector,
            priority: spec.priority,
            resource_claims: spec.resource_claims,
            scheduling_gates: spec.scheduling_gates,
            tolerations: spec.tolerations,
            ..PodSpec::default()
        }),
        status: pod.status.map(|status| PodStatus {
            conditions: status.conditions,
            extended_resource_claim_status: status.extended_resource_claim_status,
            phase: status.phase,
            resource_claim_statuses: status.resource_claim_statuses,
            ..PodStatus::default()
        }),
    }
}

pub(crate) fn claim(claim: ResourceClaim) -> ResourceClaim {
    ResourceClaim { metadata: metadata(claim.metadata), ..claim }
}

pub(crate) fn template(template: ResourceClaimTemplate) -> ResourceClaimTemplate {
    ResourceClaimTemplate { metadata: metadata(template.metadata), ..template }
}

pub(crate) fn slice(slice: ResourceSlice) -> ResourceSlice {
    ResourceSlice { metadata: metadata(slice.metadata), ..slice }
}

pub(crate) fn class(class: DeviceClass) -> DeviceClass {
    DeviceClass { metadata: metadata(class.metadata), ..class }
}
