//! Pods from manifests.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use k8s_openapi::api::core::v1::{Container, Node, Pod, PodResourceClaim, PodSpec, ResourceRequirements};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use tessera_allocator::claim::Claim;
use tessera_api::DeviceType;
use tessera_api::config::NVIDIA_DRIVER_NAME;
use tessera_api::steering::GATE;
use tessera_cel::Selector;
use tessera_cluster::gang::{self, GangId, Membership};
use tessera_cluster::subject::{self, PodObstacle, Wanted};
use tessera_cluster::{Asker, ClaimExt, Cluster, DeviceClaimExt, Key, Objects};

use super::manifest::{MadeBy, Obstacle, Replicas};
use super::present::Present;
use super::{MOST_PODS, Manifest, Pods, Shape, Workload};
use crate::fleet::Fleet;
use crate::fleet::objects::class_name;

/// Built-in PriorityClasses.
const SYSTEM_PRIORITIES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// An object that cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{object} cannot be simulated: {reason}", if .origin.is_empty() { String::new() } else { format!("{}: ", .origin) })]
pub struct ManifestError {
    /// File and line.
    origin: String,
    /// Kind and name.
    object: String,
    reason: String,
}

/// Adds manifests to a workload, one by one.
struct Reader<'o> {
    objects: Objects,
    priorities: &'o BTreeMap<String, i32>,
    /// A cluster with DeviceClasses only.
    cluster: Cluster,
    asker: Asker,
    workload: Workload,
    /// Pods already present.
    present: Present,
    /// Names of pods, with their namespaces.
    names: HashSet<Key>,
    /// Claims referenced by name.
    named_claims: HashSet<Key>,
    /// Number, size and pods so far of each gang.
    gangs: HashMap<GangId, (u32, u32, u32)>,
    /// Extended resources with generated claims.
    extended: BTreeSet<String>,
    /// Index of each shape, by its content.
    shapes: HashMap<String, usize>,
}

impl Workload {
    /// The pods of these manifests, all arriving at the beginning, in this order. `objects` contains their templates, claims and
    /// classes, `priorities` the values of PriorityClasses, `fleet` the classes of the chart.
    ///
    /// # Errors
    /// The first manifest that cannot be simulated. Objects from a cluster (with a uid) are left out instead.
    pub fn of_manifests(
        manifests: &[Manifest],
        objects: &Objects,
        priorities: &BTreeMap<String, i32>,
        fleet: &Fleet,
    ) -> Result<Self, ManifestError> {
        let classes = classes(fleet, objects);
        let mut cluster = Cluster::default();
        for class in classes.values() {
            // Applying a class cannot fail.
            let _ = cluster.apply(class.clone());
        }
        let mut known = Objects {
            claims: objects.claims.clone(),
            templates: objects.templates.clone(),
            classes: classes.clone(),
            nodes: objects.nodes.clone(),
            pod_groups: objects.pod_groups.clone(),
            ..Objects::default()
        };
        manifests.iter().for_each(|manifest| make_known(manifest, &mut known));
        let present = Present::new(manifests, &known, &objects.pods);
        let of_pods = manifests.iter().filter(|manifest| manifest.kind == "Pod");
        let mut reader = Reader {
            objects: known,
            names: of_pods.map(|pod| Key::from(&pod.pod.metadata)).collect(),
            present,
            priorities,
            cluster,
            asker: fleet.asker(),
            workload: Self { classes: classes.into_values().collect(), ..Self::default() },
            named_claims: HashSet::new(),
            gangs: HashMap::new(),
            extended: BTreeSet::new(),
            shapes: HashMap::new(),
        };
        for manifest in manifests {
            let object = format!("{} {}", manifest.kind, Key::from(&manifest.pod.metadata));
            let error = |reason| ManifestError { origin: manifest.origin.clone(), object, reason };
            match reader.add(manifest).map_err(error) {
                Ok(()) => {}
                Err(error) if manifest.pod.metadata.uid.is_some() => {
                    reader.workload.left_out.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        if !reader.extended.is_empty() {
            let resources = reader.extended.iter().cloned().collect::<Vec<_>>().join(", ");
            reader.workload.notes.push(format!(
                "pods with {resources} in their limits are simulated with the claims made by kube-scheduler, also \
                 for tessera; in a cluster, managed cards only serve pods with a ResourceClaimTemplate"
            ));
        }
        Ok(reader.workload)
    }
}

/// The fleet's classes and the given ones, which replace classes with the same name or extended resource.
fn classes(fleet: &Fleet, objects: &Objects) -> BTreeMap<Key, DeviceClass> {
    let resource = |class: &DeviceClass| class.spec.as_ref()?.extended_resource_name.clone();
    let given: BTreeSet<String> = objects.classes.values().filter_map(resource).collect();
    let mut classes: BTreeMap<Key, DeviceClass> = fleet
        .classes()
        .into_iter()
        .filter(|class| resource(class).is_none_or(|resource| !given.contains(&resource)))
        .map(|class| (Key::from(&class.metadata), class))
        .collect();
    classes.extend(objects.classes.clone());
    classes
}

impl Reader<'_> {
    fn add(&mut self, manifest: &Manifest) -> Result<(), String> {
        let mut pod = manifest.pod.clone();
        if self.present.is_made(manifest) {
            return Ok(());
        }
        match &manifest.obstacle {
            Some(Obstacle::Refused(reason)) => return Err(reason.clone()),
            Some(Obstacle::LeftOut(reason)) => {
                let object = Key::from(&pod.metadata).to_string();
                self.workload.left_out.push(format!("{} {object}: {reason}", manifest.kind));
                return Ok(());
            }
            None => {}
        }
        if manifest.total() == 0 {
            return Ok(());
        }
        if manifest.kind == "Pod" && !self.present.names.insert(Key::from(&pod.metadata)) {
            let words = format!("Pod {}: it is given twice", Key::from(&pod.metadata));
            self.workload.left_out.push(words);
            return Ok(());
        }
        if self.workload.pods.len().saturating_add(manifest.total()) > MOST_PODS {
            return Err(format!("this makes more than {MOST_PODS} pods"));
        }
        self.own(manifest, &mut pod);
        let subject = subject::of_pod(&self.objects, &pod);
        // Our gate is added again for gangs.
        let is_ours =
            |obstacle: &PodObstacle| matches!(obstacle, PodObstacle::SchedulingGate(gate) if gate == GATE);
        if let Some(obstacle) = subject.obstacles.iter().find(|obstacle| !is_ours(obstacle)) {
            return Err(obstacle.to_string());
        }
        let of_pod = Key::from(&pod.metadata);
        self.are_served(&pod, &subject.claims)?;
        if subject.claims.is_empty() {
            let words = "it asks for no devices; only pods with devices are simulated";
            self.workload.left_out.push(format!("{} {of_pod}: {words}", manifest.kind));
            return Ok(());
        }
        let spec = pod.spec.clone().unwrap_or_default();
        let claims = self.claims(manifest, &spec, &subject.claims)?;
        let priority = self.priority(&spec)?;
        let served = subject.claims.iter().flat_map(|wanted| &wanted.extended_resources);
        self.extended.extend(served.clone().cloned());
        let pod_of_claims = reduced(spec, &claims, &served.collect());
        let shape = Shape { namespace: of_pod.namespace.clone(), pod: pod_of_claims, claims };
        let shape = self.shape(shape);
        let duration = manifest.duration;
        for replica in 0..manifest.replicas.as_ref().map_or(1, |replicas| replicas.count) {
            if let Some(replicas) = &manifest.replicas {
                let labels = pod.metadata.labels.get_or_insert_default();
                labels.insert(replicas.label.to_owned(), replicas.group(replica));
            }
            let missing = self.present.missing(manifest, replica);
            if missing == 0 {
                continue;
            }
            let gang = self.gang(&pod, missing)?;
            let mut number = 0;
            for _ in 0..missing {
                let name = self.unused(&of_pod.namespace, manifest, replica, &mut number);
                self.names.insert(of_pod.with_name(&name));
                self.workload.pods.push(Pods { name, shape, duration, priority, gang, ..Pods::default() });
            }
        }
        Ok(())
    }

    /// Sets the pod's owner unless the manifest is a Pod, and records the owner's gang settings.
    fn own(&mut self, manifest: &Manifest, pod: &mut Pod) {
        // Recorded again, because a CronJob may have the name of a Job.
        make_known(manifest, &mut self.objects);
        if manifest.kind != "Pod" {
            let name = pod.metadata.name.clone().unwrap_or_default();
            pod.metadata.owner_references = Some(vec![OwnerReference {
                // The owner of a CronJob's pods is its Job.
                kind: if matches!(manifest.made_by, Some(MadeBy::Job(_))) { "Job" } else { manifest.kind }
                    .to_owned(),
                uid: pod.metadata.uid.clone().unwrap_or_else(|| name.clone()),
                name,
                controller: Some(true),
                ..OwnerReference::default()
            }]);
        }
    }

    /// The claims of each of the pods.
    fn claims(
        &mut self,
        manifest: &Manifest,
        spec: &PodSpec,
        wanted: &[Wanted],
    ) -> Result<Vec<(String, ResourceClaimSpec)>, String> {
        let references = spec.resource_claims.iter().flatten().map(|reference| reference.name.clone());
        let mut of_extended = "extended-resources".to_owned();
        while references.clone().any(|name| name == of_extended) {
            of_extended.push('x');
        }
        let (extended, others): (Vec<&Wanted>, Vec<&Wanted>) =
            wanted.iter().partition(|wanted| !wanted.extended_resources.is_empty());
        let named =
            references.zip(others).chain(extended.into_iter().map(|wanted| (of_extended.clone(), wanted)));
        let mut claims = Vec::new();
        for (name, Wanted { claim, made_from, .. }) in named {
            let of_claim = Key::from(&claim.metadata);
            if claim.has_devices() {
                return Err(format!("its ResourceClaim {} already has devices", of_claim.name));
            }
            if made_from.is_none() && (manifest.total() > 1 || !self.named_claims.insert(of_claim.clone())) {
                return Err(format!(
                    "several pods share the ResourceClaim {}; use a ResourceClaimTemplate instead",
                    of_claim.name
                ));
            }
            let asked = Claim::try_from(claim).map_err(|error| format!("its claim {name}: {error}"))?;
            // On an empty node, planning fails for a missing class or an invalid claim only.
            let planned = self.cluster.plan(&Node::default(), &[asked], &mut self.asker);
            planned.map_err(|error| format!("its claim {name}: {error}{}", hint(&error.to_string())))?;
            let spec = claim.spec.clone().unwrap_or_default();
            for expression in expressions(&spec) {
                // The API server would compile the expression as a new one.
                let compiled = Selector::compile_new(expression, self.asker.kubernetes().into());
                compiled.map_err(|error| format!("its claim {name}: {error}"))?;
            }
            claims.push((name, spec));
        }
        Ok(claims)
    }

    /// Refuses pods requesting cards by an extended resource without a class.
    fn are_served(&self, pod: &Pod, claims: &[Wanted]) -> Result<(), String> {
        let is_served = |name: &str| {
            claims.iter().any(|wanted| wanted.extended_resources.iter().any(|served| served == name))
        };
        let spec = pod.spec.iter();
        let containers = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
        let limits =
            containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref()).flatten();
        let is_none = |amount: &str| amount.chars().all(|digit| digit == '0');
        let mut asked = limits.filter(|(name, amount)| is_of_cards(name) && !is_none(&amount.0));
        let Some((name, _)) = asked.find(|(name, _)| !is_served(name)) else { return Ok(()) };
        let of_class = |class: &DeviceClass| class.spec.as_ref()?.extended_resource_name.clone();
        let known: Vec<String> = self.objects.classes.values().filter_map(of_class).collect();
        let known = if known.is_empty() {
            "no class has an extendedResourceName".to_owned()
        } else {
            format!("there are {}", known.join(", "))
        };
        Err(format!("it has {name} in its limits, but no DeviceClass serves it; {known}"))
    }

    fn priority(&self, spec: &PodSpec) -> Result<i32, String> {
        if let Some(priority) = spec.priority {
            return Ok(priority);
        }
        let Some(class) = spec.priority_class_name.as_deref().filter(|class| !class.is_empty()) else {
            return Ok(0);
        };
        let system = SYSTEM_PRIORITIES.iter().find(|(name, _)| *name == class).map(|(_, value)| *value);
        let known = self.priorities.get(class).copied().or(system);
        known.ok_or_else(|| format!("there is no PriorityClass {class}; give its manifest, too"))
    }

    /// Number and size of the gang of `count` more pods like this one.
    fn gang(&mut self, pod: &Pod, count: usize) -> Result<Option<(u32, u32)>, String> {
        let member = gang::of_pod(&self.objects, pod).map_err(|error| error.to_string())?;
        let Some(member) = member.filter(|member| member.size > 1) else { return Ok(None) };
        if member.min < member.size {
            return Err(format!(
                "its gang can start with {} of {} pods; only gangs starting all together are simulated",
                member.min, member.size
            ));
        }
        let next = self.gangs.len() as u32;
        // Pods on nodes are not waited for.
        let size = member.size.saturating_sub(self.present.gangs.get(&member.gang).copied().unwrap_or(0));
        let member = Membership { size, ..member };
        let (number, size, pods) = self.gangs.entry(member.gang).or_insert((next, member.size, 0));
        if *size != member.size {
            return Err(format!("other pods give its gang a size of {size}, not {}", member.size));
        }
        *pods = pods.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if *pods > *size {
            return Err(format!("this makes {pods} pods in a gang of {size}"));
        }
        Ok(Some((*number, *size)).filter(|(_, size)| *size > 1))
    }

    /// The index of a shape; identical shapes share one.
    fn shape(&mut self, shape: Shape) -> usize {
        let text = serde_json::to_string(&(&shape.namespace, &shape.pod, &shape.claims)).unwrap_or_default();
        let shapes = &mut self.workload.shapes;
        *self.shapes.entry(text).or_insert_with(|| {
            shapes.push(shape);
            shapes.len() - 1
        })
    }

    /// An unused name for a pod with this number, or with a later number if the name is taken by a present pod. `number` is advanced.
    /// Objects of several kinds may have the same name.
    fn unused(&self, namespace: &str, manifest: &Manifest, replica: usize, number: &mut usize) -> String {
        let name = manifest.pod.metadata.name.as_deref().unwrap_or_default();
        if manifest.kind == "Pod" {
            return name.to_owned();
        }
        let in_namespace = |name: &String| Key::new(namespace, name);
        loop {
            let (prefix, end) = match &manifest.replicas {
                None => (name, number.to_string()),
                // The only pod of its group, whose name is free if the pod is missing.
                Some(Replicas { prefix, first: None, .. }) => (prefix.as_str(), replica.to_string()),
                Some(Replicas { prefix, first: Some(first), .. }) => {
                    (prefix.as_str(), format!("{replica}-{}", first + *number))
                }
            };
            *number += 1;
            let names =
                [format!("{prefix}-{end}"), format!("{prefix}-{}-{end}", manifest.kind.to_lowercase())];
            let [plain, with_kind] = &names;
            let is_present = self.present.names.contains(&in_namespace(plain));
            if is_present && manifest.replicas.as_ref().is_none_or(|replicas| replicas.first.is_some()) {
                continue;
            }
            return if self.names.contains(&in_namespace(plain)) { with_kind } else { plain }.clone();
        }
    }
}

/// Hint for an error about a missing class of NVIDIA's driver.
fn hint(error: &str) -> &'static str {
    let nvidia = [DeviceType::Gpu, DeviceType::Mig].map(|kind| class_name(NVIDIA_DRIVER_NAME, kind));
    if nvidia.iter().any(|class| error.contains(&format!("device class {class}:"))) {
        "; --driver gpu.nvidia.com has it"
    } else {
        ""
    }
}

/// Whether the name is an extended resource for cards: of NVIDIA's device plugin, or the implicit one of a DeviceClass.
#[must_use]
pub fn is_of_cards(resource: &str) -> bool {
    ["nvidia.com/", "deviceclass.resource.kubernetes.io/"].iter().any(|prefix| resource.starts_with(prefix))
}

/// Adds the manifest's object to the known ones, for the gangs of its pods.
fn make_known(manifest: &Manifest, objects: &mut Objects) {
    let made_by = Key::from(&manifest.pod.metadata);
    match &manifest.made_by {
        None => {}
        Some(MadeBy::Job(job)) => drop(objects.jobs.insert(made_by, job.clone())),
        Some(MadeBy::JobSet(set)) => drop(objects.job_sets.insert(made_by, set.clone())),
        Some(MadeBy::LeaderWorkerSet(set)) => drop(objects.leader_worker_sets.insert(made_by, set.clone())),
    }
}

/// CEL expressions of a claim.
fn expressions(spec: &ResourceClaimSpec) -> impl Iterator<Item = &str> {
    let selectors = spec.devices.iter().flat_map(DeviceClaimExt::asked).flat_map(|(_, selectors)| selectors);
    selectors.filter_map(|selector| Some(selector.cel.as_ref()?.expression.as_str()))
}

/// The pod fields relevant for placement, with claims named after themselves and without the extended resources `served` by claims.
fn reduced(spec: PodSpec, claims: &[(String, ResourceClaimSpec)], served: &BTreeSet<&String>) -> Pod {
    let others = |amounts: Option<BTreeMap<String, Quantity>>| {
        amounts.map(|amounts| amounts.into_iter().filter(|(name, _)| !served.contains(name)).collect())
    };
    let resources = |resources: ResourceRequirements| ResourceRequirements {
        claims: None,
        limits: others(resources.limits),
        requests: others(resources.requests),
    };
    let container = |container: Container| Container {
        name: container.name,
        ports: container.ports,
        resources: container.resources.map(resources),
        restart_policy: container.restart_policy,
        ..Container::default()
    };
    let claim = |(name, _): &(String, ResourceClaimSpec)| PodResourceClaim {
        name: name.clone(),
        resource_claim_template_name: Some(name.clone()),
        resource_claim_name: None,
    };
    let spec = PodSpec {
        affinity: spec.affinity,
        containers: spec.containers.into_iter().map(container).collect(),
        init_containers: spec.init_containers.map(|all| all.into_iter().map(container).collect()),
        node_selector: spec.node_selector,
        overhead: spec.overhead,
        resource_claims: Some(claims.iter().map(claim).collect()),
        resources: spec.resources,
        tolerations: spec.tolerations,
        ..PodSpec::default()
    };
    Pod { metadata: ObjectMeta::default(), spec: Some(spec), status: None }
}
