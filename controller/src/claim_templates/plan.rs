//! Which templates are made and deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaimSpec, ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tessera_api::conversion::{MADE_FOR_LABEL, MADE_FOR_VALUE, RESOURCE_ANNOTATION, count, request_name};
use tessera_cluster::subject::{IMPLICIT, classes_by_resource};
use tessera_cluster::{Key, PodExt as _};

/// How long a template that no pod names is kept: pods come and go.
pub const KEPT: Duration = Duration::from_secs(300);

/// A write.
#[derive(Debug, PartialEq)]
pub enum Change {
    /// The template is missing.
    Make(Box<ResourceClaimTemplate>),
    /// No pod has named the template for [`KEPT`], or another class has its extended resource now.
    Delete(Box<ResourceClaimTemplate>),
}

/// Templates named by a converted pod whose claims may still be missing.
pub fn named(pod: &Pod) -> Vec<Key> {
    if pod.is_finished() || pod.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let claims = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let templates = claims.filter_map(|claim| claim.resource_claim_template_name.as_ref());
    templates.map(|name| pod.key().with_name(name)).collect()
}

/// The writes due at `now`, given all templates named by pods and all that were made for them. `unnamed` is for the next call.
pub fn changes(
    named: &BTreeSet<Key>,
    classes: &[DeviceClass],
    made: &[ResourceClaimTemplate],
    unnamed: &mut BTreeMap<Key, Instant>,
    now: Instant,
) -> Vec<Change> {
    let made: BTreeMap<Key, &ResourceClaimTemplate> =
        made.iter().map(|template| (Key::from(&template.metadata), template)).collect();
    unnamed.retain(|key, _| made.contains_key(key) && !named.contains(key));
    let mut changes = Vec::new();
    for (key, made) in &made {
        let is_due = if named.contains(key) {
            // With its class again in the next round.
            template(key, classes).is_some_and(|wanted| class(&wanted) != class(made))
        } else {
            now.duration_since(*unnamed.entry(key.clone()).or_insert(now)) >= KEPT
        };
        if is_due {
            changes.push(Change::Delete(Box::new((*made).clone())));
        }
    }
    let missing = named.iter().filter(|key| !made.contains_key(key));
    changes.extend(missing.filter_map(|key| template(key, classes)).map(Box::new).map(Change::Make));
    changes
}

/// The template of this name, if the name is that of an extended resource with a class.
fn template(key: &Key, classes: &[DeviceClass]) -> Option<ResourceClaimTemplate> {
    let by_resource = classes_by_resource(classes.iter());
    let by_resource = by_resource.into_iter().map(|(resource, class)| (resource.to_owned(), class));
    let implicit = classes
        .iter()
        .filter_map(|class| Some((format!("{IMPLICIT}{}", class.metadata.name.as_deref()?), class)));
    let (resource, class, count) = by_resource
        .chain(implicit)
        .find_map(|(resource, class)| count(&key.name, &resource).map(|count| (resource, class, count)))?;
    let exactly = ExactDeviceRequest {
        device_class_name: class.metadata.name.clone()?,
        allocation_mode: Some("ExactCount".to_owned()),
        count: Some(count),
        ..ExactDeviceRequest::default()
    };
    let request =
        DeviceRequest { name: request_name(&resource), exactly: Some(exactly), ..DeviceRequest::default() };
    let of_claims = ObjectMeta {
        annotations: Some([(RESOURCE_ANNOTATION.to_owned(), format!("{resource}: {count}"))].into()),
        ..ObjectMeta::default()
    };
    Some(ResourceClaimTemplate {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            labels: Some([(MADE_FOR_LABEL.to_owned(), MADE_FOR_VALUE.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(ResourceClaimTemplateSpec {
            metadata: Some(of_claims),
            spec: Some(ResourceClaimSpec {
                devices: Some(DeviceClaim { requests: Some(vec![request]), ..DeviceClaim::default() }),
            }),
        }),
    })
}

/// The resource for which a template of ours is, as in limits: `nvidia.com/gpu: 4`.
pub fn resource(template: &ResourceClaimTemplate) -> String {
    let of_claims = template.spec.as_ref().and_then(|spec| spec.metadata.as_ref()?.annotations.as_ref());
    of_claims.and_then(|annotations| annotations.get(RESOURCE_ANNOTATION).cloned()).unwrap_or_default()
}

fn class(template: &ResourceClaimTemplate) -> Option<&str> {
    let requests = template.spec.as_ref()?.spec.as_ref()?.devices.as_ref()?.requests.as_ref()?;
    Some(requests.first()?.exactly.as_ref()?.device_class_name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn device_class(name: &str, resource: Value, created: &str) -> DeviceClass {
        from_value(json!({ "metadata": { "name": name, "creationTimestamp": created },
            "spec": { "extendedResourceName": resource } }))
        .unwrap()
    }

    fn classes() -> Vec<DeviceClass> {
        let old = device_class("a-old", json!("nvidia.com/gpu"), "2026-11-26T10:00:00Z");
        let new = device_class("b-new", json!("nvidia.com/gpu"), "2026-11-27T10:00:00Z");
        vec![old, new, device_class("plain", Value::Null, "2026-11-27T10:00:00Z")]
    }

    fn keys(names: &[&str]) -> BTreeSet<Key> {
        names.iter().map(|name| Key::new("ns", *name)).collect()
    }

    /// As `+name` for one that is made, and `-name` for one that is deleted.
    fn told(changes: &[Change]) -> Vec<String> {
        let told = |change: &Change| match change {
            Change::Make(template) => format!("+{}", Key::from(&template.metadata)),
            Change::Delete(template) => format!("-{}", Key::from(&template.metadata)),
        };
        changes.iter().map(told).collect()
    }

    #[test]
    fn templates_are_made_of_names_that_a_class_stands_for() {
        let named = keys(&[
            "deviceclass.resource.kubernetes.io-plain-1",
            "nvidia.com-gpu-4",
            "nvidia.com-gpu.shared-1",
            "mine",
        ]);
        let changes = changes(&named, &classes(), &[], &mut BTreeMap::new(), Instant::now());
        assert_eq!(
            told(&changes),
            ["+ns/deviceclass.resource.kubernetes.io-plain-1", "+ns/nvidia.com-gpu-4"]
        );
        let Change::Make(template) = &changes[1] else { panic!("{changes:?}") };
        assert_eq!(
            serde_json::to_value(&template.spec).unwrap(),
            json!({ "metadata": { "annotations": { "gpu.tessera.dev/extended-resource": "nvidia.com/gpu: 4" } },
                "spec": { "devices": { "requests": [{ "name": "nvidia-com-gpu", "exactly": {
                    "deviceClassName": "b-new", "allocationMode": "ExactCount", "count": 4 } }] } } })
        );
        let Change::Make(template) = &changes[0] else { panic!("{changes:?}") };
        assert_eq!(class(template), Some("plain"));
    }

    #[test]
    fn a_template_without_pods_goes_after_a_while() {
        let begin = Instant::now();
        let mut unnamed = BTreeMap::new();
        let template = template(&Key::new("ns", "nvidia.com-gpu-4"), &classes()).unwrap();
        let mut after = |names: &[&str], seconds: u64| {
            let now = begin + Duration::from_secs(seconds);
            told(&changes(&keys(names), &classes(), std::slice::from_ref(&template), &mut unnamed, now))
        };
        assert_eq!(after(&[], 0), [""; 0]);
        assert_eq!(after(&[], 299), [""; 0]);
        // A pod came, and went.
        assert_eq!(after(&["nvidia.com-gpu-4"], 300), [""; 0]);
        assert_eq!(after(&[], 301), [""; 0]);
        assert_eq!(after(&[], 600), [""; 0]);
        assert_eq!(after(&[], 601), ["-ns/nvidia.com-gpu-4"]);
    }

    #[test]
    fn a_template_of_another_class_is_made_anew() {
        let key = Key::new("ns", "nvidia.com-gpu-4");
        let of_old = template(&key, &classes()[..1]).unwrap();
        let named = keys(&["nvidia.com-gpu-4"]);
        let mut unnamed = BTreeMap::new();
        let now = Instant::now();
        let first = changes(&named, &classes(), std::slice::from_ref(&of_old), &mut unnamed, now);
        assert_eq!(told(&first), ["-ns/nvidia.com-gpu-4"]);
        // Without any class the old one is better than none.
        assert_eq!(changes(&named, &[], &[of_old], &mut unnamed, now), []);
    }

    #[test]
    fn pods_that_have_ended_name_nothing() {
        let mut pod: Pod = from_value(json!({ "metadata": { "namespace": "ns", "name": "p" }, "spec": {
            "containers": [], "resourceClaims": [{ "name": "a", "resourceClaimTemplateName": "nvidia.com-gpu-4" },
                { "name": "b", "resourceClaimName": "other" }] } }))
        .unwrap();
        assert_eq!(named(&pod), [Key::new("ns", "nvidia.com-gpu-4")]);
        pod.status = from_value(json!({ "phase": "Succeeded" })).unwrap();
        assert_eq!(named(&pod), []);
    }
}
