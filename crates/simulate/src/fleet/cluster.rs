//! The fleet of a cluster, from its nodes and slices, and what is held there already.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{Device, DeviceTaint, ResourceClaim, ResourceSlice};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tessera_api::gpu_pool::Allocation;
use tessera_api::{DeviceName, NodeReport, PciBusId, Quantity, attribute, managed, node_report, taint};
use tessera_cluster::{Key, Object, Objects, display, key, outcome};
use tessera_inventory::pool::Contents;

use super::objects::{DRIVER, Published};
use super::part::Parts;
use super::workload::{Held, ends as deadline_of};
use super::{Fleet, FleetError, FleetNode, MOST_NODES, Manifest, NodeKind, Workload};

impl Fleet {
    /// The nodes of a cluster on which cards are published, as they are. Slices of other drivers and DeviceTaintRules count, too.
    ///
    /// # Errors
    /// There are none, or too many.
    pub fn of_cluster(objects: &Objects) -> Result<Self, FleetError> {
        let mut fleet = Self { driver: driver_of(objects), ..Self::default() };
        let mut of_nodes: BTreeMap<&str, Vec<&ResourceSlice>> = BTreeMap::new();
        for slice in objects.slices.values() {
            match slice.spec.node_name.as_deref().filter(|_| slice.spec.driver == fleet.driver) {
                Some(node) => of_nodes.entry(node).or_default().push(slice),
                None => fleet.others.push(slice.clone().into()),
            }
        }
        fleet.others.extend(objects.taint_rules.values().cloned().map(Object::from));
        let mut missing = Vec::new();
        for (name, slices) in of_nodes {
            let newest = slices.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or_default();
            let slices: Vec<&ResourceSlice> =
                slices.into_iter().filter(|slice| slice.spec.pool.generation == newest).collect();
            let node = objects.nodes.get(&(String::new(), name.to_owned()));
            let Some(node) = node else {
                missing.push(name);
                continue;
            };
            if fleet.nodes.len() == MOST_NODES {
                return Err(FleetError::TooLarge(MOST_NODES + 1));
            }
            let pool = slices.first().map_or(name, |slice| slice.spec.pool.name.as_str());
            fleet.of_pool.insert(pool.to_owned(), fleet.nodes.len());
            fleet.by_name.insert(name.to_owned(), fleet.nodes.len());
            let kind = Arc::new(kind(node, name, &slices));
            fleet.nodes.push(FleetNode { name: name.to_owned(), kind });
        }
        match missing.first() {
            Some(name) if fleet.nodes.is_empty() => return Err(FleetError::NoNode((*name).to_owned())),
            _ if fleet.nodes.is_empty() => return Err(FleetError::NoSlices(fleet.driver)),
            _ => {}
        }
        let left_out =
            |name: &str| format!("node {name} is left out: it has ResourceSlices, but there is no such Node");
        fleet.warnings.extend(missing.into_iter().map(left_out));
        Ok(fleet)
    }
}

/// The driver whose plugins report of most nodes; the default where none does.
fn driver_of(objects: &Objects) -> String {
    let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
    for slice in objects.slices.values() {
        if slice.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(node_report::ANNOTATION)) {
            *nodes.entry(&slice.spec.driver).or_default() += 1;
        }
    }
    nodes.into_iter().max_by_key(|(_, count)| *count).map_or(DRIVER, |(driver, _)| driver).to_owned()
}

fn kind(node: &Node, name: &str, slices: &[&ResourceSlice]) -> NodeKind {
    let published =
        [Allocation::Managed, Allocation::Native].map(|allocation| publish(name, slices, allocation));
    let mut cards: BTreeMap<PciBusId, String> = BTreeMap::new();
    for device in slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten()) {
        let Ok(card) = device.name.parse::<DeviceName>() else { continue };
        let model =
            device.attributes.as_ref().and_then(|all| all.get(attribute::PRODUCT_NAME)?.string.clone());
        cards.insert(card.card(), model.unwrap_or_else(|| "unknown card".to_owned()));
    }
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let amount = |resource: &str, unit: i128| {
        let quantity = allocatable.and_then(|all| Quantity::parse(&all.get(resource)?.0).ok());
        quantity.and_then(|quantity| u64::try_from(quantity.nanos() / unit).ok()).unwrap_or(0)
    };
    NodeKind {
        node: node.clone(),
        cpu_milli: amount("cpu", 1_000_000),
        memory_mib: amount("memory", 1_000_000_000 << 20),
        cards,
        parts: Parts::of(&published[1]),
        published,
    }
}

/// The slices, if all cards had this allocation.
fn publish(node: &str, slices: &[&ResourceSlice], allocation: Allocation) -> Published {
    let mut report = NodeReport::default();
    for slice in slices {
        let annotation = slice.metadata.annotations.as_ref().and_then(|all| all.get(node_report::ANNOTATION));
        // One that cannot be read is none, as for the controller.
        if let Some(said) = annotation.and_then(|text| serde_json::from_str(text).ok()) {
            report = said;
        }
    }
    let mut contents = Vec::new();
    for slice in slices {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        let end = name.strip_prefix(node).and_then(|end| end.strip_prefix('-')).unwrap_or(name).to_owned();
        let sets = slice.spec.shared_counters.clone().unwrap_or_default();
        if !sets.is_empty() {
            contents.push((end, Contents::SharedCounters(sets)));
            continue;
        }
        let devices: Vec<Device> = slice.spec.devices.iter().flatten().cloned().collect();
        for device in &devices {
            if let Ok(name) = device.name.parse::<DeviceName>() {
                report.cards.entry(name.card()).or_default();
            }
        }
        let devices = devices.into_iter().map(|device| allocated_by(device, allocation));
        contents.push((end, Contents::Devices(devices.collect())));
    }
    report.cards.values_mut().for_each(|card| card.allocation = allocation);
    let pool = slices.first().map(|slice| slice.spec.pool.name.clone());
    Published { slices: contents, report: json!(report).to_string(), pool }
}

/// The device, with the taint of managed cards or without it.
fn allocated_by(mut device: Device, allocation: Allocation) -> Device {
    let taints = device.taints.get_or_insert_default();
    taints.retain(|taint| taint.key != managed::TAINT_KEY);
    if allocation == Allocation::Managed {
        let (key, effect) = (managed::TAINT_KEY.to_owned(), taint::EFFECT_NO_SCHEDULE.to_owned());
        taints.push(DeviceTaint { key, effect, ..DeviceTaint::default() });
    }
    device
}

impl Workload {
    /// Adds what is held in a cluster already: pods and claims stay where they are until their deadlines, or for ever. `manifests` has the
    /// Jobs of the pods, as far as they are known.
    pub fn hold(&mut self, objects: &Objects, manifests: &[Manifest], fleet: &Fleet) {
        let ends = ends(objects, manifests);
        for pod in objects.pods.values() {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if node.is_some_and(|node| fleet.index(node).is_some())
                && !matches!(phase, Some("Succeeded" | "Failed"))
            {
                self.standing.push(pod.as_ref().clone().into());
            }
        }
        for claim in objects.claims.values() {
            let Some(allocation) = claim.status.as_ref().and_then(|status| status.allocation.clone()) else {
                continue;
            };
            self.standing.push(claim.as_ref().clone().into());
            let own = outcome::results(&allocation).iter().find(|result| result.driver == fleet.driver);
            if let Some(node) = own.and_then(|result| fleet.of_pool.get(&result.pool)) {
                let pods = pods_of(claim);
                // It is free when the last of its pods is gone.
                let ends: Option<Vec<Duration>> = pods.iter().map(|pod| ends.get(pod).copied()).collect();
                let ends = ends.and_then(|ends| ends.into_iter().max());
                let (name, claim) = (holder(claim), key(&claim.metadata));
                self.held.push(Held { name, claim, pods, ends, node: *node, allocation });
            }
        }
    }
}

/// How long each pod on a node has from now on, where a deadline says so. Now is the newest time that nodes and pods tell: kubelets
/// write one every five minutes.
fn ends(objects: &Objects, manifests: &[Manifest]) -> BTreeMap<Key, Duration> {
    let conditions = objects.nodes.values().filter_map(|node| node.status.as_ref()?.conditions.as_ref());
    let of_nodes = conditions.flatten().filter_map(|condition| condition.last_heartbeat_time.as_ref());
    let started = |pod: &Pod| pod.status.as_ref().and_then(|status| status.start_time.clone());
    let of_pods = objects.pods.values().filter_map(|pod| started(pod));
    let Some(now) = of_nodes.cloned().chain(of_pods).map(|time| time.0).max() else {
        return BTreeMap::new();
    };
    let jobs: BTreeMap<Key, Timestamp> = manifests
        .iter()
        .filter(|manifest| manifest.kind == "Job")
        .filter_map(|job| Some((key(&job.pod.metadata), job.ends?)))
        .collect();
    let end = |pod: &Pod| {
        let deadline = pod.spec.as_ref()?.active_deadline_seconds;
        let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "Job");
        let of_job = owner.and_then(|owner| jobs.get(&(key(&pod.metadata).0, owner.name.clone())).copied());
        let end = [deadline_of(started(pod).as_ref(), deadline), of_job].into_iter().flatten().min()?;
        Some((key(&pod.metadata), Duration::try_from(end.duration_since(now)).unwrap_or_default()))
    };
    objects.pods.values().filter_map(|pod| end(pod)).collect()
}

/// The pods that hold a claim.
fn pods_of(claim: &ResourceClaim) -> Vec<Key> {
    let consumers = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    let pods = consumers.filter(|consumer| consumer.resource == "pods");
    pods.map(|pod| (key(&claim.metadata).0, pod.name.clone())).collect()
}

/// Who holds a claim: its first pod, or its own name where none does.
fn holder(claim: &ResourceClaim) -> String {
    let pod = pods_of(claim).into_iter().next();
    pod.map_or_else(|| format!("claim {}", display(&key(&claim.metadata))), |(_, pod)| pod)
}
