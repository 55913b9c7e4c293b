//! The fleet of a cluster, from its nodes and slices, and the allocations already held there.

mod facts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{Device, DeviceTaint, ResourceClaim, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tessera_api::gpu_pool::Allocation;
use tessera_api::{DeviceName, NodeReport, PciBusId, attribute, managed, node_report, taint};
use tessera_cluster::{AllocationExt, ClaimExt, Key, Object, Objects, PodExt};
use tessera_inventory::pool::{Contents, Held, Slice};

use super::objects::{self, Published};
use super::workload::{self, ends as deadline_of};
use super::{Fleet, FleetError, MOST_NODES, Manifest, NodeKind, Pools, Workload};

impl Fleet {
    /// The nodes with published cards of a cluster, as they are or as these pools would offer them. Includes slices of other drivers and
    /// DeviceTaintRules. `driver`: name of the DRA driver.
    ///
    /// # Errors
    /// No nodes or too many nodes, or the effect of the pools on a node is unknown.
    pub fn of_cluster(objects: &Objects, driver: &str, pools: Option<&Pools>) -> Result<Self, FleetError> {
        let mut fleet = Self { driver: driver.to_owned(), is_of_cluster: true, ..Self::default() };
        let mut of_nodes: BTreeMap<&str, Vec<&ResourceSlice>> = BTreeMap::new();
        for slice in objects.slices.values() {
            match slice.spec.node_name.as_deref().filter(|_| slice.spec.driver == fleet.driver) {
                Some(node) => of_nodes.entry(node).or_default().push(slice),
                None => fleet.others.push(slice.clone().into()),
            }
        }
        fleet.others.extend(objects.taint_rules.values().cloned().map(Object::from));
        let held = held_devices(objects, &fleet.driver);
        let mut missing = Vec::new();
        for (name, slices) in of_nodes {
            let newest = slices.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or_default();
            let slices: Vec<&ResourceSlice> =
                slices.into_iter().filter(|slice| slice.spec.pool.generation == newest).collect();
            let node = objects.node(name);
            let Some(node) = node else {
                missing.push(name);
                continue;
            };
            if fleet.nodes.len() == MOST_NODES {
                return Err(FleetError::TooLarge(MOST_NODES + 1));
            }
            let pool = slices.first().map_or(name, |slice| slice.spec.pool.name.as_str());
            let kind = match pools {
                None => as_it_is(node, name, &slices),
                Some(pools) => fleet.offered_by(pools, node, name, &slices, held.get(pool))?,
            };
            fleet.push(pool.to_owned(), name.to_owned(), Arc::new(kind));
        }
        match missing.first() {
            Some(name) if fleet.nodes.is_empty() => return Err(FleetError::NoNode((*name).to_owned())),
            // Devices of another vendor's driver have other names.
            _ if fleet.cards() == 0 => return Err(FleetError::NoSlices(fleet.driver)),
            _ => {}
        }
        let left_out =
            |name: &str| format!("node {name} is left out: it has ResourceSlices, but there is no such Node");
        fleet.warnings.extend(missing.into_iter().map(left_out));
        Ok(fleet)
    }

    /// The node as offered by these pools. Held devices stay published.
    fn offered_by(
        &mut self,
        pools: &Pools,
        node: &Node,
        name: &str,
        slices: &[&ResourceSlice],
        held: Option<&BTreeSet<&str>>,
    ) -> Result<NodeKind, FleetError> {
        let unknown = |reason: String| FleetError::Unknown { node: name.to_owned(), reason };
        let report = report_of(slices).ok_or_else(|| unknown("its plugin's report is missing".to_owned()))?;
        let published = publish(name, slices, Allocation::Native);
        let devices: Vec<Device> =
            slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten()).cloned().collect();
        let machine = Arc::new(facts::machine_of(&self.driver, &devices, &report).map_err(unknown)?);
        let mut warnings = BTreeSet::new();
        let labels = objects::labels(node, name);
        let kubernetes = report.kubernetes.clone().unwrap_or_else(|| self.kubernetes.to_string());
        let resolution = pools.resolve(&self.driver, &labels, &machine, &kubernetes, &mut warnings);
        self.warnings.extend(warnings.iter().map(|warning| format!("{name}: {warning}")));
        let slice = |(suffix, spec): &(String, _)| Slice {
            name_suffix: suffix.clone(),
            contents: Contents::of(spec),
        };
        let slices: Vec<Slice> = published.slices.iter().map(slice).collect();
        let held = Held::new(&slices, |device| held.is_some_and(|held| held.contains(device)));
        let mut kind = self.kind(name, node.clone(), &resolution, &held);
        for published_so in &mut kind.published {
            published_so.pool.clone_from(&published.pool);
        }
        Ok(kind)
    }
}

/// Devices of the driver held by claims, by pool.
fn held_devices<'o>(objects: &'o Objects, driver: &str) -> BTreeMap<&'o str, BTreeSet<&'o str>> {
    let mut held: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let allocations = objects.claims.values().flat_map(|claim| claim.results());
    for result in allocations {
        if result.driver == driver {
            held.entry(&result.pool).or_default().insert(&result.device);
        }
    }
    held
}

/// A node with these slices.
fn as_it_is(node: &Node, name: &str, slices: &[&ResourceSlice]) -> NodeKind {
    let published =
        [Allocation::Managed, Allocation::Native].map(|allocation| publish(name, slices, allocation));
    let mut cards: BTreeMap<PciBusId, String> = BTreeMap::new();
    for device in slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten()) {
        let Ok(card) = device.name.parse::<DeviceName>() else { continue };
        let model =
            device.attributes.as_ref().and_then(|all| all.get(attribute::PRODUCT_NAME)?.string.clone());
        cards.insert(card.card(), model.unwrap_or_else(|| "unknown card".to_owned()));
    }
    NodeKind::new(node.clone(), cards, published)
}

/// The node report, an annotation of the first slice. An unreadable report counts as none, as in the controller.
fn report_of(slices: &[&ResourceSlice]) -> Option<NodeReport> {
    slices.iter().find_map(|slice| {
        let annotation = slice.metadata.annotations.as_ref()?.get(node_report::ANNOTATION)?;
        serde_json::from_str(annotation).ok()
    })
}

/// The slices with this allocation for all cards.
fn publish(node: &str, slices: &[&ResourceSlice], allocation: Allocation) -> Published {
    let mut report = report_of(slices).unwrap_or_default();
    let mut contents = Vec::new();
    for slice in slices {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        let end = name.strip_prefix(node).and_then(|end| end.strip_prefix('-')).unwrap_or(name).to_owned();
        for device in slice.spec.devices.iter().flatten() {
            if let Ok(name) = device.name.parse::<DeviceName>() {
                report.cards.entry(name.card()).or_default();
            }
        }
        let allocated = |device: &Device| allocated_by(device.clone(), allocation);
        let devices = slice.spec.devices.as_ref().map(|devices| devices.iter().map(allocated).collect());
        let shared_counters = slice.spec.shared_counters.clone();
        contents.push((end, ResourceSliceSpec { devices, shared_counters, ..ResourceSliceSpec::default() }));
    }
    report.cards.values_mut().for_each(|card| card.allocation = allocation);
    let pool = slices.first().map(|slice| slice.spec.pool.name.clone());
    Published { slices: contents, report: json!(report).to_string(), pool }
}

/// The device with or without the taint of managed cards.
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
    /// Adds allocations already held in a cluster. Their pods and claims stay until their deadlines, or for ever. `manifests` contains the
    /// known Jobs of the pods.
    pub fn hold(&mut self, objects: &Objects, manifests: &[Manifest], fleet: &Fleet) {
        let ends = ends(objects, manifests);
        for pod in objects.pods.values() {
            let node = pod.node_name();
            if node.is_some_and(|node| fleet.index(node).is_some()) && !pod.is_finished() {
                self.standing.push(pod.as_ref().clone().into());
            }
        }
        for claim in objects.claims.values() {
            let Some(allocation) = claim.allocation() else {
                continue;
            };
            self.standing.push(claim.as_ref().clone().into());
            let own = allocation.results().iter().find(|result| result.driver == fleet.driver);
            if let Some(node) = own.and_then(|result| fleet.of_pool.get(&result.pool)) {
                let pods = pods_of(claim);
                // The claim is free once the last of its pods has ended.
                let ends: Option<Vec<Duration>> = pods.iter().map(|pod| ends.get(pod).copied()).collect();
                let ends = ends.and_then(|ends| ends.into_iter().max());
                let (name, claim) = (holder(claim), Key::from(&claim.metadata));
                self.held.push(workload::Held {
                    name,
                    claim,
                    pods,
                    ends,
                    node: *node,
                    allocation: allocation.clone(),
                });
            }
        }
    }
}

/// Remaining time of each pod with a deadline. The current time is the latest timestamp of nodes and pods: kubelets write a
/// heartbeat every five minutes.
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
        .filter_map(|job| Some((Key::from(&job.pod.metadata), job.ends?)))
        .collect();
    let end = |pod: &Pod| {
        let deadline = pod.spec.as_ref()?.active_deadline_seconds;
        let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "Job");
        let of_job =
            owner.and_then(|owner| jobs.get(&Key::from(&pod.metadata).with_name(&owner.name)).copied());
        let end = [deadline_of(started(pod).as_ref(), deadline), of_job].into_iter().flatten().min()?;
        Some((Key::from(&pod.metadata), Duration::try_from(end.duration_since(now)).unwrap_or_default()))
    };
    objects.pods.values().filter_map(|pod| end(pod)).collect()
}

/// Pods holding a claim.
fn pods_of(claim: &ResourceClaim) -> Vec<Key> {
    let consumers = claim.users().iter();
    let pods = consumers.filter(|consumer| consumer.resource == "pods");
    pods.map(|pod| Key::from(&claim.metadata).with_name(&pod.name)).collect()
}

/// Name of the claim's first pod, or of the claim if no pod holds it.
fn holder(claim: &ResourceClaim) -> String {
    let pod = pods_of(claim).into_iter().next();
    pod.map_or_else(|| format!("claim {}", Key::from(&claim.metadata)), |pod| pod.name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1::DeviceAttribute;

    use super::*;
    use crate::fleet::objects::DRIVER;
    use crate::fleet::{LayoutFile, NodeGroup};

    /// All objects of a fleet in the API server.
    fn objects_of(fleet: &Fleet) -> Objects {
        let mut objects = Objects::default();
        for object in fleet.objects(Allocation::Native) {
            match object {
                Object::Node(node) => drop(objects.nodes.insert(Key::from(&node.metadata), node)),
                Object::ResourceSlice(slice) => {
                    drop(objects.slices.insert(Key::from(&slice.metadata), slice))
                }
                _ => {}
            }
        }
        objects
    }

    fn slices(fleet: &Fleet) -> Vec<ResourceSlice> {
        fleet.nodes().iter().flat_map(|node| node.slices(fleet.driver(), Allocation::Managed)).collect()
    }

    fn pools(offers: &[serde_json::Value]) -> Pools {
        let layouts = "{ version: v1, mig-configs: { sevenths: [{ devices: all, mig-enabled: true, mig-devices: { 1g.10gb: 7 } }] } }";
        let layouts = LayoutFile::parse(layouts).unwrap();
        let mut pools = Pools::default().with_layouts(Some(Arc::new(layouts)));
        for (number, offer) in offers.iter().enumerate() {
            pools.insert(&format!("pool-{number}"), None, &json!({ "offer": offer })).unwrap();
        }
        pools
    }

    /// For every known machine and every way of offering its cards now: pools resolve the published facts like the machine itself.
    #[test]
    fn what_is_published_tells_what_pools_would_make_of_it() {
        let offers = [
            vec![],
            vec![json!({ "partitioning": { "mode": "None" } })],
            vec![json!({ "sharing": { "mps": {} } })],
            vec![json!({ "sharing": { "timeSlicing": { "replicas": 4 } } })],
        ];
        let mut compared = 0;
        for machine in tessera_hardware::machine_names() {
            // Some machines lack four cards, or MIG.
            for settings in [["cards=4", "cards=1"], ["cards=1,mig=on"; 2]] {
                let group = settings
                    .iter()
                    .find_map(|cards| format!("1x{machine},{cards}").parse::<NodeGroup>().ok());
                let Some(group) = group else { continue };
                let group = [group];
                for (now, then) in offers.iter().zip(offers.iter().cycle().skip(1)) {
                    let now = Fleet::with_pools(&group, &pools(now)).unwrap();
                    // On Ampere in MIG mode a card without partitions publishes no device.
                    if slices(&now).iter().all(|slice| slice.spec.devices.is_none()) {
                        continue;
                    }
                    let found = Fleet::of_cluster(&objects_of(&now), DRIVER, Some(&pools(then))).unwrap();
                    let wanted = Fleet::with_pools(&group, &pools(then)).unwrap();
                    assert_eq!(slices(&found), slices(&wanted), "{machine},{settings:?}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 80, "{compared}");
    }

    /// Partitions of a layout exist until another layout replaces them.
    #[test]
    fn partitions_that_are_there_stay() {
        let group = ["1xdgx-a100,cards=1".parse().unwrap()];
        let laid_out = Fleet::with_pools(&group, &pools(&[json!({ "layout": "sevenths" })])).unwrap();
        let found = Fleet::of_cluster(&objects_of(&laid_out), DRIVER, Some(&pools(&[json!({})]))).unwrap();
        assert_eq!(slices(&found), slices(&laid_out));
    }

    /// Facts of a single card, different from its board's facts or absent from all emulated machines.
    #[test]
    fn what_is_published_of_a_card_counts_before_its_board() {
        let fabric = "00010203-0405-0607-0809-0a0b0c0d0e0f.7";
        let group = ["1xgb200-tray".parse().unwrap()];
        let mut objects = objects_of(&Fleet::new(&group).unwrap());
        let address = "gpu-0008-01-00";
        let devices = objects.slices.values_mut().flat_map(|slice| slice.spec.devices.iter_mut().flatten());
        for device in devices.filter(|device| device.name.starts_with(address)) {
            let string = |text: &str| DeviceAttribute { string: Some(text.to_owned()), ..Default::default() };
            let attributes = device.attributes.as_mut().unwrap();
            attributes.insert(attribute::ADDRESSING_MODE.to_owned(), string("ATS"));
            if device.name == address {
                attributes.insert(attribute::NVLINK_DOMAIN.to_owned(), string(fabric));
                attributes.get_mut(attribute::MEMORY_MIB).unwrap().int = Some(100_000);
            }
            device.taints = Some(vec![no_schedule("gpu.tessera.dev/unhealthy", "xid-79")]);
        }
        let sharing = pools(&[json!({ "sharing": { "mps": {} } })]);
        let found = Fleet::of_cluster(&objects, DRIVER, Some(&sharing)).unwrap();
        let text = |device: &Device, name: &str| device.attributes.as_ref()?.get(name)?.string.clone();
        let slices = slices(&found);
        let devices: Vec<&Device> =
            slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten()).collect();
        let (of_card, of_others): (Vec<&Device>, Vec<&Device>) =
            devices.into_iter().partition(|device| device.name.starts_with(address));
        assert!(of_card.len() > 10, "{}", of_card.len());
        for device in of_card {
            let unhealthy = device.taints.iter().flatten().find(|taint| taint.key.ends_with("/unhealthy"));
            assert_eq!(unhealthy.and_then(|taint| taint.value.as_deref()), Some("xid-79"), "{}", device.name);
            assert_eq!(text(device, attribute::ADDRESSING_MODE).as_deref(), Some("ATS"), "{}", device.name);
            if device.name == address {
                assert_eq!(text(device, attribute::NVLINK_DOMAIN).as_deref(), Some(fabric));
                assert_eq!(device.attributes.as_ref().unwrap()[attribute::MEMORY_MIB].int, Some(100_000));
            }
        }
        let taints = of_others.iter().flat_map(|device| device.taints.iter().flatten());
        assert!(taints.map(|taint| &taint.key).all(|key| key == managed::TAINT_KEY));
    }

    /// A device published only because of a claim is not unhealthy.
    #[test]
    fn a_card_that_its_pool_does_not_offer_is_healthy() {
        let group = ["1xt4,cards=1".parse().unwrap()];
        let mut objects = objects_of(&Fleet::new(&group).unwrap());
        for device in objects.slices.values_mut().flat_map(|slice| slice.spec.devices.iter_mut().flatten()) {
            device.taints = Some(vec![no_schedule("gpu.tessera.dev/not-offered", "")]);
        }
        let found = Fleet::of_cluster(&objects, DRIVER, Some(&pools(&[json!({})]))).unwrap();
        assert_eq!(slices(&found), slices(&Fleet::with_pools(&group, &pools(&[json!({})])).unwrap()));
    }

    fn no_schedule(key: &str, value: &str) -> DeviceTaint {
        let value = Some(value.to_owned()).filter(|value| !value.is_empty());
        DeviceTaint { key: key.to_owned(), value, effect: "NoSchedule".to_owned(), time_added: None }
    }

    #[test]
    fn what_is_not_published_is_said() {
        let group = ["1xdgx-a100,cards=1".parse().unwrap()];
        let objects = objects_of(&Fleet::new(&group).unwrap());
        let said = |change: &dyn Fn(&mut ResourceSlice)| {
            let mut objects = objects.clone();
            objects.slices.values_mut().for_each(change);
            Fleet::of_cluster(&objects, DRIVER, Some(&Pools::simulated())).unwrap_err().to_string()
        };
        let without_report = said(&|slice| slice.metadata.annotations = None);
        assert!(
            without_report.contains("node dgx-a100-0001: its plugin's report is missing"),
            "{without_report}"
        );
        let unknown = said(&|slice| {
            for device in slice.spec.devices.iter_mut().flatten() {
                let attributes = device.attributes.as_mut().unwrap();
                attributes.get_mut(attribute::PRODUCT_NAME).unwrap().string = Some("NVIDIA X1".to_owned());
            }
        });
        assert!(unknown.contains("it has cards \"NVIDIA X1\"; only these are known:"), "{unknown}");
        let nothing = said(&|slice| slice.spec.devices = slice.spec.devices.as_ref().map(|_| Vec::new()));
        assert!(nothing.contains("nothing is published of its card 0000:07:00.0"), "{nothing}");
    }
}
