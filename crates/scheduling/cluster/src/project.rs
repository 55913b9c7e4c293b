//! Reduces objects to the fields used: of a pod of 10 KiB, a few lines matter here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, Node, NodeSpec, NodeStatus, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeClaimSpec, PersistentVolumeSpec, Pod, PodSpec, PodStatus, PodTemplateSpec,
    ResourceRequirements, Volume,
};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tessera_api::gang::PARTIAL_TIMEOUT_ANNOTATION;
use tessera_api::{device_status, kueue, managed, node_report, waiting};

use crate::gang;
use crate::kueue::{Workload, WorkloadSpec};
use crate::quota::GpuQuota;

pub(crate) fn metadata(metadata: ObjectMeta) -> ObjectMeta {
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

pub(crate) fn quota(quota: GpuQuota) -> GpuQuota {
    let generation = quota.metadata.generation;
    GpuQuota { metadata: ObjectMeta { generation, ..metadata(quota.metadata) }, status: None, ..quota }
}

/// The metadata of an object that pods of a gang belong to.
pub(crate) fn workload_metadata(mut found: ObjectMeta) -> ObjectMeta {
    let annotations = only(found.annotations.take(), &[PARTIAL_TIMEOUT_ANNOTATION]);
    ObjectMeta { annotations, ..metadata(found) }
}

/// The fields of one of Kueue's Workloads; pods only with AdmissionChecks.
pub(crate) fn kueue_workload(workload: Workload) -> Workload {
    let Workload { api_version, metadata: mut found, mut spec, status } = workload;
    let annotations = only(found.annotations.take(), &[kueue::ROOM_ANNOTATION]);
    let resource_version = found.resource_version.take();
    if status.admission_checks.is_empty() {
        spec = WorkloadSpec::default();
    }
    for pod_set in &mut spec.pod_sets {
        let PodTemplateSpec { metadata, spec } = std::mem::take(&mut pod_set.template);
        let Pod { metadata, spec, .. } =
            pod(Pod { metadata: metadata.unwrap_or_default(), spec, ..Pod::default() });
        pod_set.template = PodTemplateSpec { metadata: Some(metadata), spec };
    }
    let metadata = ObjectMeta { annotations, resource_version, ..metadata(found) };
    Workload { api_version, metadata, spec, status }
}

/// The fields of a node relevant to scheduling.
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

/// The fields of a pod about its placement, its claims, and its conditions.
pub(crate) fn pod(mut pod: Pod) -> Pod {
    let annotations = only(
        pod.metadata.annotations.take(),
        &[
            managed::REFUSED_NODES_ANNOTATION,
            device_status::EVICTIONS_ANNOTATION,
            managed::NOMINATION_ANNOTATION,
            waiting::WAITING_ANNOTATION,
            tessera_api::gang::FORMED_ANNOTATION,
            gang::labels::LWS_SIZE,
            PARTIAL_TIMEOUT_ANNOTATION,
            tessera_api::gpu_pool::IDLE_ANNOTATION,
            tessera_api::gpu_pool::IDLE_EVICTED_ANNOTATION,
            tessera_api::conversion::CONVERTED,
            kueue::ROOM_OF_ANNOTATION,
        ],
    );
    let container = |container: Container| Container {
        name: container.name,
        resources: container.resources.map(|resources| ResourceRequirements {
            limits: resources.limits,
            requests: resources.requests,
            ..ResourceRequirements::default()
        }),
        restart_policy: container.restart_policy,
        ports: container.ports.map(|ports| ports.into_iter().filter_map(host_port).collect()),
        ..Container::default()
    };
    Pod {
        metadata: ObjectMeta {
            owner_references: pod.metadata.owner_references.clone(),
            annotations,
            ..metadata(pod.metadata)
        },
        spec: pod.spec.map(|spec| PodSpec {
            active_deadline_seconds: spec.active_deadline_seconds,
            affinity: spec.affinity,
            containers: spec.containers.into_iter().map(container).collect(),
            init_containers: spec.init_containers.map(|all| all.into_iter().map(container).collect()),
            node_name: spec.node_name,
            node_selector: spec.node_selector,
            overhead: spec.overhead,
            preemption_policy: spec.preemption_policy,
            priority: spec.priority,
            priority_class_name: spec.priority_class_name,
            resources: spec.resources,
            scheduler_name: spec.scheduler_name,
            scheduling_group: spec.scheduling_group,
            termination_grace_period_seconds: spec.termination_grace_period_seconds,
            volumes: spec.volumes.map(|all| all.into_iter().filter_map(claimed_volume).collect()),
            resource_claims: spec.resource_claims,
            scheduling_gates: spec.scheduling_gates,
            tolerations: spec.tolerations,
            ..PodSpec::default()
        }),
        status: pod.status.map(|status| PodStatus {
            conditions: status.conditions,
            extended_resource_claim_status: status.extended_resource_claim_status,
            nominated_node_name: status.nominated_node_name,
            phase: status.phase,
            resource_claim_statuses: status.resource_claim_statuses,
            start_time: status.start_time,
            ..PodStatus::default()
        }),
    }
}

pub(crate) fn claim(mut claim: ResourceClaim) -> ResourceClaim {
    let owner_references = claim.metadata.owner_references.take();
    let (resource_version, finalizers) =
        (claim.metadata.resource_version.take(), claim.metadata.finalizers.take());
    let annotations = only(claim.metadata.annotations.take(), &[managed::EPOCH_ANNOTATION]);
    let metadata = metadata(claim.metadata);
    ResourceClaim {
        metadata: ObjectMeta { owner_references, resource_version, finalizers, annotations, ..metadata },
        ..claim
    }
}

/// The annotations of these keys, if any is there.
fn only(annotations: Option<BTreeMap<String, String>>, keys: &[&str]) -> Option<BTreeMap<String, String>> {
    let mut kept = annotations?;
    kept.retain(|key, _| keys.contains(&key.as_str()));
    (!kept.is_empty()).then_some(kept)
}

pub(crate) fn template(template: ResourceClaimTemplate) -> ResourceClaimTemplate {
    ResourceClaimTemplate { metadata: metadata(template.metadata), ..template }
}

/// The slice, with the plugin's report about the node if `keeps_report`. Allocations do not depend on the report.
pub(crate) fn slice(mut slice: ResourceSlice, keeps_report: bool) -> ResourceSlice {
    let annotations = slice.metadata.annotations.take().filter(|_| keeps_report);
    let annotations = only(annotations, &[node_report::ANNOTATION]);
    ResourceSlice { metadata: ObjectMeta { annotations, ..metadata(slice.metadata) }, ..slice }
}

pub(crate) fn class(class: DeviceClass) -> DeviceClass {
    DeviceClass { metadata: metadata(class.metadata), ..class }
}

/// The port, if a host port.
fn host_port(port: ContainerPort) -> Option<ContainerPort> {
    port.host_port.filter(|port| *port > 0)?;
    Some(ContainerPort {
        host_ip: port.host_ip,
        host_port: port.host_port,
        protocol: port.protocol,
        ..ContainerPort::default()
    })
}

/// The volume, if a PersistentVolumeClaim provides it.
fn claimed_volume(volume: Volume) -> Option<Volume> {
    let is_claimed = volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
    is_claimed.then(|| Volume {
        name: volume.name,
        persistent_volume_claim: volume.persistent_volume_claim,
        ephemeral: volume.ephemeral.map(|_| Default::default()),
        ..Volume::default()
    })
}

/// The claim reduced to the name of its volume.
pub(crate) fn volume_claim(claim: PersistentVolumeClaim) -> PersistentVolumeClaim {
    let spec = claim.spec.map(|spec| PersistentVolumeClaimSpec {
        volume_name: spec.volume_name,
        ..PersistentVolumeClaimSpec::default()
    });
    PersistentVolumeClaim { metadata: metadata(claim.metadata), spec, status: None }
}

/// The volume reduced to its node affinity.
pub(crate) fn volume(volume: PersistentVolume) -> PersistentVolume {
    let spec = volume.spec.map(|spec| PersistentVolumeSpec {
        node_affinity: spec.node_affinity,
        ..PersistentVolumeSpec::default()
    });
    PersistentVolume { metadata: metadata(volume.metadata), spec, status: None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_slice_s_annotations_the_report_stays_for_those_who_keep_slices() {
        let published: ResourceSlice = serde_json::from_value(json!({
            "metadata": { "name": "s", "annotations": { node_report::ANNOTATION: "{}", "other": "x" } },
            "spec": { "driver": "d", "pool": { "name": "p", "generation": 1, "resourceSliceCount": 1 } },
        }))
        .unwrap();
        let kept = |keeps_report| slice(published.clone(), keeps_report).metadata.annotations;
        let report = (node_report::ANNOTATION.to_owned(), "{}".to_owned());
        assert_eq!(kept(true), Some([report].into()));
        assert_eq!(kept(false), None);
    }
}
