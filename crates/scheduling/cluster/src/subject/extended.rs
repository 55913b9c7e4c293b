//! The claim kube-scheduler makes for extended resources of DeviceClasses.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tessera_api::Quantity;

use super::{MadeFrom, PodObstacle, Wanted};
use crate::key::Key;
use crate::objects::Objects;

/// Prefix of the implicit extended resource of every class.
pub const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";

/// The claim for the pod's extended resources, if a class provides any of them.
pub fn claim(objects: &Objects, pod: &Pod) -> Option<Wanted> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let status = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    let classes = classes(objects);
    let spec = pod.spec.as_ref()?;
    let (mut requests, mut resources) = (Vec::new(), Vec::new());
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    for (index, container) in containers.enumerate() {
        for (number, (resource, count)) in asked(container).into_iter().enumerate() {
            let Some(class) = class_of(objects, &classes, &resource) else { continue };
            requests.push(DeviceRequest {
                name: format!("container-{index}-request-{number}"),
                exactly: Some(ExactDeviceRequest {
                    device_class_name: class,
                    allocation_mode: Some("ExactCount".to_owned()),
                    count: Some(count),
                    ..ExactDeviceRequest::default()
                }),
                ..DeviceRequest::default()
            });
            if !resources.contains(&resource) {
                resources.push(resource);
            }
        }
    }
    if requests.is_empty() {
        return None;
    }
    let made_from = Some(MadeFrom::ExtendedResources(resources.clone()));
    if let Some(existing) =
        status.and_then(|status| objects.claims.get(&Key::new(&namespace, &status.resource_claim_name)))
    {
        return Some(Wanted {
            claim: existing.as_ref().clone(),
            made_from: None,
            extended_resources: resources,
        });
    }
    let name = format!("{}-extended-resources", pod.metadata.name.as_deref().unwrap_or_default());
    let claim = ResourceClaim {
        metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
        spec: Some(ResourceClaimSpec {
            devices: Some(DeviceClaim { requests: Some(requests), ..DeviceClaim::default() }),
        }),
        status: None,
    };
    Some(Wanted { claim, made_from, extended_resources: resources })
}

/// Extended resources of the pod provided neither by a class nor by a device plugin of any node. Empty without nodes.
pub fn unprovided(objects: &Objects, pod: &Pod) -> Vec<PodObstacle> {
    let classes = classes(objects);
    let served = |resource: &str| {
        objects.nodes.values().any(|node| {
            let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
            allocatable.is_some_and(|all| all.contains_key(resource))
        })
    };
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let mut missing: Vec<String> = containers.flat_map(|container| asked(container).into_keys()).collect();
    missing.retain(|resource| {
        !objects.nodes.is_empty() && class_of(objects, &classes, resource).is_none() && !served(resource)
    });
    missing.sort();
    missing.dedup();
    missing.into_iter().map(PodObstacle::NoExtendedResource).collect()
}

/// Whether the pod's claims depend on classes and nodes: a container asks for an extended resource.
pub fn asks_for_extended_resources(pod: &Pod) -> bool {
    let spec = pod.spec.iter();
    let mut containers = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    containers.any(|container| !asked(container).is_empty())
}

fn classes(objects: &Objects) -> BTreeMap<&str, &DeviceClass> {
    classes_by_resource(objects.classes.values())
}

/// DeviceClasses by extended resource name: the newest if several share a name, then the first by class name.
pub fn classes_by_resource<'c>(
    classes: impl Iterator<Item = &'c DeviceClass>,
) -> BTreeMap<&'c str, &'c DeviceClass> {
    let mut found: BTreeMap<&str, &DeviceClass> = BTreeMap::new();
    for class in classes {
        let Some(resource) = class.spec.as_ref().and_then(|spec| spec.extended_resource_name.as_deref())
        else {
            continue;
        };
        let kept = found.entry(resource).or_insert(class);
        if class.metadata.creation_timestamp > kept.metadata.creation_timestamp {
            *kept = class;
        }
    }
    found
}

fn class_of(objects: &Objects, classes: &BTreeMap<&str, &DeviceClass>, resource: &str) -> Option<String> {
    if let Some(class) = classes.get(resource) {
        return class.metadata.name.clone();
    }
    let name = resource.strip_prefix(IMPLICIT)?;
    objects.classes.contains_key(&Key::cluster(name)).then(|| name.to_owned())
}

/// Extended resources of a container by name, with their counts. Unset requests default to the limits.
fn asked(container: &Container) -> BTreeMap<String, i64> {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    limits
        .into_iter()
        .chain(requests)
        .flatten()
        .filter(|(name, _)| name.contains('/'))
        .filter_map(|(name, quantity)| Some((name.clone(), Quantity::parse(&quantity.0).ok()?.as_int64()?)))
        .filter(|(_, count)| *count > 0)
        .collect()
}
