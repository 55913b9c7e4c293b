//! The Kubernetes objects of a cluster, from any source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};

use crate::change::Kind;
use crate::key::Key;
use crate::kueue::{ResourceFlavorSpec, Workload};
use crate::quota::GpuQuota;
use crate::workloads::{DisruptionBudget, Job, JobSet, LeaderWorkerSet, PodGroup};

/// Objects by name, in order.
#[derive(Debug, Default, Clone)]
pub struct Objects {
    /// Nodes.
    pub nodes: BTreeMap<Key, Node>,
    /// Pods. Each version of a pod or claim is an allocation of its own, so that what was computed of it can be kept.
    pub pods: BTreeMap<Key, Arc<Pod>>,
    /// ResourceClaims.
    pub claims: BTreeMap<Key, Arc<ResourceClaim>>,
    /// ResourceClaimTemplates.
    pub templates: BTreeMap<Key, ResourceClaimTemplate>,
    /// ResourceSlices, without taints from rules.
    pub slices: BTreeMap<Key, ResourceSlice>,
    /// DeviceClasses.
    pub classes: BTreeMap<Key, DeviceClass>,
    /// DeviceTaintRules.
    pub taint_rules: BTreeMap<Key, DeviceTaintRule>,
    /// PersistentVolumeClaims.
    pub volume_claims: BTreeMap<Key, PersistentVolumeClaim>,
    /// PersistentVolumes.
    pub volumes: BTreeMap<Key, PersistentVolume>,
    /// Jobs.
    pub jobs: BTreeMap<Key, Job>,
    /// JobSets.
    pub job_sets: BTreeMap<Key, JobSet>,
    /// LeaderWorkerSets.
    pub leader_worker_sets: BTreeMap<Key, LeaderWorkerSet>,
    /// PodGroups.
    pub pod_groups: BTreeMap<Key, PodGroup>,
    /// PodDisruptionBudgets.
    pub budgets: BTreeMap<Key, DisruptionBudget>,
    /// GpuQuotas.
    pub quotas: BTreeMap<Key, Arc<GpuQuota>>,
    /// Labels of namespaces.
    pub namespaces: BTreeMap<Key, BTreeMap<String, String>>,
    /// Kueue's Workloads.
    pub workloads: BTreeMap<Key, Arc<Workload>>,
    /// Kueue's AdmissionChecks, each with the name of its controller.
    pub admission_checks: BTreeMap<Key, String>,
    /// Kueue's ResourceFlavors.
    pub flavors: BTreeMap<Key, ResourceFlavorSpec>,
    /// Existing objects that cannot be read, with the error. They are in no other field, except claims whose devices could be read.
    pub unreadable: BTreeMap<(Kind, Key), String>,
    /// Kinds that cannot be listed: unseen objects of these kinds may exist.
    pub unlisted: BTreeSet<Kind>,
}

/// `namespace/name` of a claim, or the name alone.
pub fn reference(claim: &ResourceClaim) -> String {
    Key::from(&claim.metadata).to_string()
}

impl Objects {
    /// The PodDisruptionBudgets of the pod.
    pub fn budgets_of<'o>(&'o self, pod: &'o Pod) -> impl Iterator<Item = (&'o Key, &'o DisruptionBudget)> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&NONE);
        let budgets = self.budgets.range(Key::new(namespace, "")..);
        let budgets = budgets.take_while(move |(key, _)| key.namespace == namespace);
        budgets.filter(move |(_, budget)| budget.selects(labels))
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(&Key::cluster(name))
    }

    /// Adds objects, replacing those with the same name.
    pub fn overlay(&mut self, other: &Objects) {
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
        } = other.clone();
        self.nodes.extend(nodes);
        self.pods.extend(pods);
        self.claims.extend(claims);
        self.templates.extend(templates);
        self.slices.extend(slices);
        self.classes.extend(classes);
        self.taint_rules.extend(taint_rules);
        self.volume_claims.extend(volume_claims);
        self.volumes.extend(volumes);
        self.jobs.extend(jobs);
        self.job_sets.extend(job_sets);
        self.leader_worker_sets.extend(leader_worker_sets);
        self.pod_groups.extend(pod_groups);
        self.budgets.extend(budgets);
        self.quotas.extend(quotas);
        self.namespaces.extend(namespaces);
        self.workloads.extend(workloads);
        self.admission_checks.extend(admission_checks);
        self.flavors.extend(flavors);
        self.unreadable.extend(unreadable);
        self.unlisted.extend(unlisted);
    }
}
