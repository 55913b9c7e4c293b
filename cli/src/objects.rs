//! The Kubernetes objects that the commands work on, wherever they come from.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    Device, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};

/// Namespace and name; cluster-wide objects have an empty namespace.
pub type Key = (String, String);

/// Objects by name, in order.
#[derive(Debug, Default, Clone)]
pub struct Objects {
    /// Nodes.
    pub nodes: BTreeMap<Key, Node>,
    /// Pods.
    pub pods: BTreeMap<Key, Pod>,
    /// ResourceClaims.
    pub claims: BTreeMap<Key, ResourceClaim>,
    /// ResourceClaimTemplates.
    pub templates: BTreeMap<Key, ResourceClaimTemplate>,
    /// ResourceSlices, without the taints of rules.
    pub slices: BTreeMap<Key, ResourceSlice>,
    /// DeviceClasses.
    pub classes: BTreeMap<Key, DeviceClass>,
    /// DeviceTaintRules.
    pub taint_rules: BTreeMap<Key, DeviceTaintRule>,
}

/// Two objects have one name.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name} is given twice; remove one of the two")]
pub struct Duplicate {
    kind: &'static str,
    name: String,
}

/// Inserts unless the name is taken.
///
/// # Errors
/// The name is taken.
pub fn insert<T>(
    objects: &mut BTreeMap<Key, T>,
    kind: &'static str,
    key: Key,
    object: T,
) -> Result<(), Duplicate> {
    if objects.contains_key(&key) {
        return Err(Duplicate { kind, name: display(&key) });
    }
    objects.insert(key, object);
    Ok(())
}

/// `namespace/name`, or the name alone of what is cluster-wide.
pub fn display(key: &Key) -> String {
    if key.0.is_empty() { key.1.clone() } else { format!("{}/{}", key.0, key.1) }
}

impl Objects {
    /// Adds objects, in place of those with the same name.
    pub fn overlay(&mut self, other: &Objects) {
        let Objects { nodes, pods, claims, templates, slices, classes, taint_rules } = other.clone();
        self.nodes.extend(nodes);
        self.pods.extend(pods);
        self.claims.extend(claims);
        self.templates.extend(templates);
        self.slices.extend(slices);
        self.classes.extend(classes);
        self.taint_rules.extend(taint_rules);
    }

    /// The slices as kube-scheduler sees them: with the taints that rules add to devices.
    pub fn tainted_slices(&self) -> Vec<ResourceSlice> {
        let mut slices: Vec<ResourceSlice> = self.slices.values().cloned().collect();
        for slice in &mut slices {
            for rule in self.taint_rules.values() {
                let (driver, pool) = (&slice.spec.driver, &slice.spec.pool.name);
                for device in slice.spec.devices.iter_mut().flatten() {
                    if applies(rule, driver, pool, device) {
                        device.taints.get_or_insert_default().push(rule.spec.taint.clone());
                    }
                }
            }
        }
        slices
    }
}

/// A rule without a selector applies to no device.
fn applies(rule: &DeviceTaintRule, driver: &str, pool: &str, device: &Device) -> bool {
    let Some(selector) = &rule.spec.device_selector else { return false };
    let fits = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
    fits(&selector.driver, driver) && fits(&selector.pool, pool) && fits(&selector.device, &device.name)
}
