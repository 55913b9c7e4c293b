//! Adds, updates and deletes objects of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tessera_allocator::claim::Class;

use crate::claim::ClaimExt;
use crate::cluster::Cluster;
use crate::error::ObjectError;
use crate::holder::Holder;
use crate::key::Key;
use crate::kueue::{AdmissionCheck, ResourceFlavor, Workload};
use crate::objects::Objects;
use crate::project;
use crate::quota::GpuQuota;
use crate::taken::Hold;
use crate::workloads::{DisruptionBudget, Job, JobSet, LeaderWorkerSet, PodGroup};

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
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each is what its name says")]
        pub enum Kind {
            $($kind,)*
        }

        impl Kind {
            /// Its name, as in `kind` of its objects.
            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => stringify!($kind),)*
                }
            }
        }

        impl Object {
            /// Its kind.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Object::$kind(_) => Kind::$kind,)*
                }
            }

            /// Its metadata.
            pub fn metadata(&self) -> &ObjectMeta {
                match self {
                    $(Object::$kind(object) => &object.metadata,)*
                }
            }
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
    PersistentVolumeClaim: PersistentVolumeClaim,
    PersistentVolume: PersistentVolume,
    Job: Job,
    JobSet: JobSet,
    LeaderWorkerSet: LeaderWorkerSet,
    PodGroup: PodGroup,
    DisruptionBudget: DisruptionBudget,
    GpuQuota: GpuQuota,
    Namespace: Namespace,
    Workload: Workload,
    AdmissionCheck: AdmissionCheck,
    ResourceFlavor: ResourceFlavor,
}

impl Cluster {
    /// A cluster of these objects.
    ///
    /// # Errors
    /// As for [`Self::apply`].
    pub fn of(objects: Objects) -> Result<Self, ObjectError> {
        let Objects {
            nodes,
            pods,
            claims,
            templates,
            slices,
            classes,
            taint_rules,
            volume_claims,
            volumes,
            jobs,
            job_sets,
            leader_worker_sets,
            pod_groups,
            budgets,
            quotas,
            namespaces,
            workloads,
            admission_checks,
            flavors,
            unreadable,
            unlisted,
        } = objects;
        let mut cluster = Cluster { keeps_slices: true, ..Cluster::default() };
        for rule in taint_rules.into_values() {
            cluster.apply(rule)?;
        }
        for slice in slices.into_values() {
            cluster.apply(slice)?;
        }
        for claim in claims.into_values() {
            cluster.apply(Arc::unwrap_or_clone(claim))?;
        }
        for class in classes.into_values() {
            cluster.apply(class)?;
        }
        for node in nodes.into_values() {
            cluster.apply(node)?;
        }
        for pod in pods.into_values() {
            cluster.apply(Arc::unwrap_or_clone(pod))?;
        }
        for template in templates.into_values() {
            cluster.apply(template)?;
        }
        for claim in volume_claims.into_values() {
            cluster.apply(claim)?;
        }
        for volume in volumes.into_values() {
            cluster.apply(volume)?;
        }
        let all = &mut cluster.objects;
        (all.jobs, all.job_sets) = (jobs, job_sets);
        (all.leader_worker_sets, all.pod_groups, all.budgets) = (leader_worker_sets, pod_groups, budgets);
        (all.quotas, all.namespaces) = (quotas, namespaces);
        (all.workloads, all.admission_checks, all.flavors) = (workloads, admission_checks, flavors);
        (all.unreadable, all.unlisted) = (unreadable, unlisted);
        cluster.inventory.shrink_to_fit();
        Ok(cluster)
    }

    /// Adds or updates an object. Returns whether any field kept here changed; always true for pods, claims, and objects defining
    /// devices.
    ///
    /// # Errors
    /// The object contains a value the API server would not accept. The cluster is then unchanged.
    pub fn apply(&mut self, object: impl Into<Object>) -> Result<bool, ObjectError> {
        let object = object.into();
        let key = Key::from(object.metadata());
        self.objects.unreadable.remove(&(object.kind(), key.clone()));
        let objects = &mut self.objects;
        match object {
            Object::Node(node) => return Ok(put(&mut objects.nodes, key, project::node(node))),
            Object::Pod(pod) => {
                self.objects.pods.insert(key.clone(), Arc::new(project::pod(pod)));
                self.settle(&Holder::Pod(key));
            }
            Object::ResourceClaimTemplate(template) => {
                return Ok(put(&mut objects.templates, key, project::template(template)));
            }
            Object::PersistentVolumeClaim(claim) => {
                return Ok(put(&mut objects.volume_claims, key, project::volume_claim(claim)));
            }
            Object::PersistentVolume(volume) => {
                return Ok(put(&mut objects.volumes, key, project::volume(volume)));
            }
            Object::DeviceClass(class) => {
                self.classes.insert(Class::from(&class));
                self.objects.classes.insert(key, project::class(class));
            }
            Object::ResourceClaim(claim) => self.apply_claim(project::claim(claim))?,
            Object::ResourceSlice(slice) => {
                let slice = project::slice(slice, self.keeps_slices);
                let change =
                    self.inventory.update(&slice).map_err(|error| ObjectError::of_slice(&slice, error))?;
                self.taken.held_mut().follow(&self.inventory, &change);
                if self.keeps_slices {
                    self.objects.slices.insert(key, slice);
                }
            }
            Object::DeviceTaintRule(rule) => {
                self.objects.taint_rules.insert(key, rule);
                self.inventory.set_taint_rules(self.objects.taint_rules.values());
            }
            Object::Job(Job { metadata, spec, status }) => {
                let metadata = project::workload_metadata(metadata);
                return Ok(put(&mut objects.jobs, key, Job { metadata, spec, status }));
            }
            Object::JobSet(JobSet { metadata, spec }) => {
                let metadata = project::workload_metadata(metadata);
                return Ok(put(&mut objects.job_sets, key, JobSet { metadata, spec }));
            }
            Object::LeaderWorkerSet(LeaderWorkerSet { metadata, spec }) => {
                let metadata = project::workload_metadata(metadata);
                return Ok(put(&mut objects.leader_worker_sets, key, LeaderWorkerSet { metadata, spec }));
            }
            Object::PodGroup(PodGroup { metadata, spec }) => {
                let metadata = project::workload_metadata(metadata);
                return Ok(put(&mut objects.pod_groups, key, PodGroup { metadata, spec }));
            }
            Object::DisruptionBudget(budget) => {
                let metadata = project::metadata(budget.metadata);
                return Ok(put(&mut objects.budgets, key, DisruptionBudget { metadata, ..budget }));
            }
            Object::GpuQuota(quota) => {
                return Ok(put(&mut objects.quotas, key, Arc::new(project::quota(quota))));
            }
            Object::Namespace(namespace) => {
                let labels = namespace.metadata.labels.unwrap_or_default();
                return Ok(put(&mut objects.namespaces, key, labels));
            }
            Object::Workload(workload) => {
                return Ok(put(&mut objects.workloads, key, Arc::new(project::kueue_workload(workload))));
            }
            Object::AdmissionCheck(check) => {
                return Ok(put(&mut objects.admission_checks, key, check.spec.controller_name));
            }
            Object::ResourceFlavor(flavor) => return Ok(put(&mut objects.flavors, key, flavor.spec)),
        }
        Ok(true)
    }

    /// Marks an existing object as unreadable, where [`Self::apply`] was not called or failed. Pods using the object report this.
    pub fn mark_unreadable(&mut self, kind: Kind, key: Key, why: String) {
        self.objects.unreadable.insert((kind, key), why);
    }

    /// Sets the kinds that cannot be listed. Objects of these kinds may exist unseen; all objects of other kinds are here.
    pub fn set_unlisted(&mut self, kinds: BTreeSet<Kind>) {
        self.objects.unlisted = kinds;
    }

    /// Deletes an object.
    pub fn delete(&mut self, kind: Kind, key: &Key) {
        self.objects.unreadable.remove(&(kind, key.clone()));
        match kind {
            Kind::Node => drop(self.objects.nodes.remove(key)),
            Kind::Pod => {
                self.objects.pods.remove(key);
                self.settle(&Holder::Pod(key.clone()));
            }
            Kind::PersistentVolumeClaim => drop(self.objects.volume_claims.remove(key)),
            Kind::PersistentVolume => drop(self.objects.volumes.remove(key)),
            Kind::ResourceClaimTemplate => drop(self.objects.templates.remove(key)),
            Kind::DeviceClass => {
                self.classes.remove(&key.name);
                self.objects.classes.remove(key);
            }
            Kind::ResourceClaim => {
                self.objects.claims.remove(key);
                self.settle(&Holder::Claim(key.clone()));
            }
            Kind::ResourceSlice => {
                self.objects.slices.remove(key);
                let change = self.inventory.remove(&key.name);
                self.taken.held_mut().follow(&self.inventory, &change);
            }
            Kind::Job => drop(self.objects.jobs.remove(key)),
            Kind::JobSet => drop(self.objects.job_sets.remove(key)),
            Kind::LeaderWorkerSet => drop(self.objects.leader_worker_sets.remove(key)),
            Kind::PodGroup => drop(self.objects.pod_groups.remove(key)),
            Kind::DisruptionBudget => drop(self.objects.budgets.remove(key)),
            Kind::GpuQuota => drop(self.objects.quotas.remove(key)),
            Kind::Namespace => drop(self.objects.namespaces.remove(key)),
            Kind::Workload => drop(self.objects.workloads.remove(key)),
            Kind::AdmissionCheck => drop(self.objects.admission_checks.remove(key)),
            Kind::ResourceFlavor => drop(self.objects.flavors.remove(key)),
            Kind::DeviceTaintRule => {
                self.objects.taint_rules.remove(key);
                self.inventory.set_taint_rules(self.objects.taint_rules.values());
            }
        }
    }

    fn apply_claim(&mut self, claim: ResourceClaim) -> Result<(), ObjectError> {
        let key = claim.key();
        let before = self.objects.claims.get(&key).and_then(|before| before.allocation());
        let is_as_before = before == claim.allocation();
        if !is_as_before {
            Hold::of_claim(&claim)?;
        }
        self.objects.claims.insert(key.clone(), Arc::new(claim));
        if !is_as_before {
            self.settle(&Holder::Claim(key));
        }
        Ok(())
    }
}

/// Keeps the object. Returns whether it differs from the previous one.
fn put<T: PartialEq>(objects: &mut BTreeMap<Key, T>, key: Key, object: T) -> bool {
    let is_new = objects.get(&key) != Some(&object);
    if is_new {
        objects.insert(key, object);
    }
    is_new
}
