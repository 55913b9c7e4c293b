//! Adds, updates and deletes objects of a cluster.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    Device, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use tessera_allocator::claim::Class;

use crate::cluster::Cluster;
use crate::error::ObjectError;
use crate::objects::{Key, Objects, key};
use crate::project;

/// Declares the kinds: each with its type, and the conversion to an [`Object`].
macro_rules! kinds {
    ($($kind:ident: $type:ty,)*) => {
        /// An object of a cluster.
        #[derive(Debug, Clone)]
        #[allow(clippy::large_enum_variant, reason = "never kept: it is taken apart where it arrives")]
        #[allow(missing_docs, reason = "each is what its name says")]
        pub enum Object {
            $($kind($type),)*
        }

        /// The kind of an object.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is what its name says")]
        pub enum Kind {
            $($kind,)*
        }

        $(impl From<$type> for Object {
            fn from(object: $type) -> Self {
                Object::$kind(object)
            }
        })*
    };
}

kinds! {
    Node: Node,
    Pod: Pod,
    ResourceClaim: ResourceClaim,
    ResourceClaimTemplate: ResourceClaimTemplate,
    ResourceSlice: ResourceSlice,
    DeviceClass: DeviceClass,
    DeviceTaintRule: DeviceTaintRule,
}

impl Cluster {
    /// A cluster of these objects.
    ///
    /// # Errors
    /// As for [`Self::apply`].
    pub fn of(objects: Objects) -> Result<Self, ObjectError> {
        let Objects { nodes, pods, claims, templates, slices, classes, taint_rules } = objects;
        let mut cluster = Cluster::default();
        // Rules before the slices that they apply to, so that each slice is added only once.
        for rule in taint_rules.into_values() {
            cluster.apply(rule)?;
        }
        for slice in slices.into_values() {
            cluster.apply(slice)?;
        }
        for claim in claims.into_values() {
            cluster.apply(claim)?;
        }
        for class in classes.into_values() {
            cluster.apply(class)?;
        }
        for node in nodes.into_values() {
            cluster.apply(node)?;
        }
        for pod in pods.into_values() {
            cluster.apply(pod)?;
        }
        for template in templates.into_values() {
            cluster.apply(template)?;
        }
        cluster.inventory.shrink_to_fit();
        Ok(cluster)
    }

    /// Adds or updates an object.
    ///
    /// # Errors
    /// It contains something that the API server would not accept; the cluster is then as before.
    pub fn apply(&mut self, object: impl Into<Object>) -> Result<(), ObjectError> {
        match object.into() {
            Object::Node(node) => {
                self.objects.nodes.insert(key(&node.metadata), project::node(node));
            }
            Object::Pod(pod) => {
                self.objects.pods.insert(key(&pod.metadata), project::pod(pod));
            }
            Object::ResourceClaimTemplate(template) => {
                self.objects.templates.insert(key(&template.metadata), project::template(template));
            }
            Object::DeviceClass(class) => {
                self.classes.insert(Class::from(&class));
                self.objects.classes.insert(key(&class.metadata), project::class(class));
            }
            Object::ResourceClaim(claim) => self.apply_claim(project::claim(claim))?,
            Object::ResourceSlice(slice) => {
                let slice = project::slice(slice);
                self.update_inventory(&slice)?;
                self.objects.slices.insert(key(&slice.metadata), slice);
            }
            Object::DeviceTaintRule(rule) => {
                let key = key(&rule.metadata);
                let before = self.objects.taint_rules.insert(key, rule.clone());
                self.taint_again(before.iter().chain([&rule]))?;
            }
        }
        Ok(())
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// After the deletion of a taint rule, a slice has more devices than can be counted.
    pub fn delete(&mut self, kind: Kind, key: &Key) -> Result<(), ObjectError> {
        match kind {
            Kind::Node => drop(self.objects.nodes.remove(key)),
            Kind::Pod => drop(self.objects.pods.remove(key)),
            Kind::ResourceClaimTemplate => drop(self.objects.templates.remove(key)),
            Kind::DeviceClass => {
                self.classes.remove(&key.1);
                self.objects.classes.remove(key);
            }
            Kind::ResourceClaim => {
                if let Some(claim) = self.objects.claims.remove(key) {
                    // Cannot fail: the same quantities were parsed when the claim was added.
                    let _ = Arc::make_mut(&mut self.held).remove(&self.inventory, &claim);
                }
            }
            Kind::ResourceSlice => {
                if self.objects.slices.remove(key).is_some() {
                    let change = self.inventory.remove(&key.1);
                    Arc::make_mut(&mut self.held).follow(&self.inventory, &change);
                }
            }
            Kind::DeviceTaintRule => {
                if let Some(rule) = self.objects.taint_rules.remove(key) {
                    self.taint_again([&rule].into_iter())?;
                }
            }
        }
        Ok(())
    }

    fn apply_claim(&mut self, claim: ResourceClaim) -> Result<(), ObjectError> {
        let key = key(&claim.metadata);
        let before = self.objects.claims.get(&key);
        fn allocation(claim: &ResourceClaim) -> Option<&k8s_openapi::api::resource::v1::AllocationResult> {
            claim.status.as_ref()?.allocation.as_ref()
        }
        if before.and_then(allocation) != allocation(&claim) {
            let held = Arc::make_mut(&mut self.held);
            held.add(&self.inventory, &claim).map_err(|error| ObjectError::of_claim(&claim, error))?;
            if let Some(before) = before {
                let _ = held.remove(&self.inventory, before);
            }
        }
        self.objects.claims.insert(key, claim);
        Ok(())
    }

    /// Puts a slice into the inventory as kube-scheduler sees it: with the taints that rules add to devices.
    fn update_inventory(&mut self, slice: &ResourceSlice) -> Result<(), ObjectError> {
        let rules: Vec<&DeviceTaintRule> =
            self.objects.taint_rules.values().filter(|rule| is_about(rule, slice)).collect();
        let change = if rules.is_empty() {
            self.inventory.update(slice)
        } else {
            let mut tainted = slice.clone();
            for rule in rules {
                for device in tainted.spec.devices.iter_mut().flatten().filter(|device| taints(rule, device))
                {
                    device.taints.get_or_insert_default().push(rule.spec.taint.clone());
                }
            }
            self.inventory.update(&tainted)
        };
        let change = change.map_err(|error| ObjectError::of_slice(slice, error))?;
        Arc::make_mut(&mut self.held).follow(&self.inventory, &change);
        Ok(())
    }

    fn taint_again<'r>(
        &mut self,
        rules: impl Iterator<Item = &'r DeviceTaintRule> + Clone,
    ) -> Result<(), ObjectError> {
        let slices = std::mem::take(&mut self.objects.slices);
        let mut concerned = slices.values().filter(|slice| rules.clone().any(|rule| is_about(rule, slice)));
        let result = concerned.try_for_each(|slice| self.update_inventory(slice));
        self.objects.slices = slices;
        result
    }
}

fn is_or_any(wanted: &Option<String>, found: &str) -> bool {
    wanted.as_deref().is_none_or(|wanted| wanted == found)
}

/// Whether a rule may taint devices of the slice. One without a selector taints none.
fn is_about(rule: &DeviceTaintRule, slice: &ResourceSlice) -> bool {
    rule.spec.device_selector.as_ref().is_some_and(|selector| {
        is_or_any(&selector.driver, &slice.spec.driver) && is_or_any(&selector.pool, &slice.spec.pool.name)
    })
}

/// Whether a rule taints this device of a slice that it applies to.
fn taints(rule: &DeviceTaintRule, device: &Device) -> bool {
    rule.spec.device_selector.as_ref().is_some_and(|selector| is_or_any(&selector.device, &device.name))
}
