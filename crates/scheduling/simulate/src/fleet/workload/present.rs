//! Pods already present, by their creators: a workload creates only the missing ones.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tessera_cluster::gang::{self, GangId, labels};
use tessera_cluster::{Key, Objects, PodExt};

use super::Manifest;
use super::manifest::Replicas;

/// The label with the hash at the end of a Deployment's ReplicaSet names.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Longest chain of owners: a pod's Job, its JobSet, and one to spare.
const MOST_OWNERS: usize = 4;

/// An object creating pods: kind, namespace and name.
type Maker = (String, Key);

/// Pods that are there already.
#[derive(Default)]
pub(super) struct Present {
    /// Names of pods on nodes.
    pub names: HashSet<Key>,
    /// Unfinished pods on nodes, by gang.
    pub gangs: HashMap<GangId, u32>,
    /// Owner of each object that creates pods.
    makers: HashMap<Maker, Option<Maker>>,
    /// Number of existing pods by creator, part and group number.
    made: HashMap<(Maker, String, String), usize>,
}

impl Present {
    /// Pods on nodes from `pods`, and pods on no node from the manifests. `objects` contains the objects that make gangs.
    pub fn new(manifests: &[Manifest], objects: &Objects, pods: &BTreeMap<Key, Arc<Pod>>) -> Self {
        let mut present = Self::default();
        for manifest in manifests.iter().filter(|manifest| manifest.kind != "Pod") {
            present.makers.insert(maker(manifest), controller(&manifest.pod.metadata));
        }
        for pod in pods.values() {
            let is_on_node = pod.node_name().is_some();
            if !is_on_node {
                continue;
            }
            present.names.insert(Key::from(&pod.metadata));
            present.count(pod);
            if !is_over(pod)
                && let Ok(Some(member)) = gang::of_pod(objects, pod)
            {
                *present.gangs.entry(member.gang).or_default() += 1;
            }
        }
        manifests.iter().filter(|manifest| manifest.kind == "Pod").for_each(|pod| present.count(&pod.pod));
        present
    }

    /// Counts a pod for all of its creators.
    fn count(&mut self, pod: &Pod) {
        let is_over = is_over(pod);
        for maker in self.makers_of(pod) {
            // A JobSet waits for its Jobs, so finished pods count. Other kinds replace finished pods, or track successes.
            if is_over && maker.0 != "JobSet" {
                continue;
            }
            let (part, group) = place(&maker.0, pod);
            *self.made.entry((maker, part, group)).or_default() += 1;
        }
    }

    /// Creators of a pod, the nearest first.
    fn makers_of(&self, pod: &Pod) -> Vec<Maker> {
        let namespace = Key::from(&pod.metadata).namespace;
        let of = |kind: &str, name: &str| (kind.to_owned(), Key::new(&namespace, name));
        if let Some(set) = label(pod, labels::LWS_NAME) {
            return vec![of("LeaderWorkerSet", set)];
        }
        let mut makers = Vec::new();
        let mut next = controller(&pod.metadata);
        while let Some(maker) = next.filter(|_| makers.len() < MOST_OWNERS) {
            next = self.makers.get(&maker).cloned().unwrap_or_else(|| {
                // The object is unknown, but its name tells its owner.
                let (kind, Key { name, .. }) = &maker;
                match kind.as_str() {
                    "ReplicaSet" => {
                        let end = format!("-{}", label(pod, TEMPLATE_HASH)?);
                        Some(of("Deployment", name.strip_suffix(&end)?))
                    }
                    "Job" => match label(pod, labels::JOBSET_NAME) {
                        Some(set) => Some(of("JobSet", set)),
                        None => {
                            let (cron_job, time) = name.rsplit_once('-')?;
                            time.parse::<u64>().is_ok().then(|| of("CronJob", cron_job))
                        }
                    },
                    _ => None,
                }
            });
            makers.push(maker);
        }
        makers
    }

    /// Whether another given object creates the manifest's object.
    pub fn is_made(&self, manifest: &Manifest) -> bool {
        let owner = controller(&manifest.pod.metadata).filter(|_| manifest.kind != "Pod");
        owner.is_some_and(|owner| self.makers.contains_key(&owner))
    }

    /// Number of missing pods in a group of a manifest; groups are counted from 0.
    pub fn missing(&self, manifest: &Manifest, group: usize) -> usize {
        let place = manifest.replicas.as_ref().map(|replicas| (replicas.part.clone(), replicas.group(group)));
        let (part, group) = place.unwrap_or_default();
        manifest.count.saturating_sub(self.made.get(&(maker(manifest), part, group)).copied().unwrap_or(0))
    }
}

fn maker(manifest: &Manifest) -> Maker {
    (manifest.kind.to_owned(), Key::from(&manifest.pod.metadata))
}

fn controller(of: &ObjectMeta) -> Option<Maker> {
    let owner = of.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    Some((owner.kind.clone(), Key::from(of).with_name(&owner.name)))
}

/// Part and group of a pod for a creator of this kind, as in [`Replicas`].
fn place(kind: &str, pod: &Pod) -> (String, String) {
    let text = |name: &str| label(pod, name).unwrap_or_default().to_owned();
    match kind {
        "JobSet" => (text(labels::JOBSET_REPLICATED_JOB), text(labels::JOBSET_JOB)),
        "LeaderWorkerSet" => {
            let part =
                if label(pod, labels::LWS_WORKER) == Some("0") { Replicas::LEADER } else { Replicas::WORKER };
            (part.to_owned(), text(labels::LWS_REPLICA))
        }
        _ => (String::new(), String::new()),
    }
}

fn label<'p>(pod: &'p Pod, name: &str) -> Option<&'p str> {
    pod.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn is_over(pod: &Pod) -> bool {
    pod.is_finished()
}
