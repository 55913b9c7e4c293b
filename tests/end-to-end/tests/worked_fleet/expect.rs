//! Expectations of the fleet, checked against the API, the disks and the emulated drivers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tessera_harness::node_stand_in::{NodeStandIn, PreparedPod};

/// A device that is allocated to a pod's claim.
#[derive(Clone, Debug)]
pub struct Grant {
    pub pod: String,
    pub node: String,
    pub claim_uid: String,
    pub device: String,
    pub share: Option<String>,
    pub consumed: BTreeMap<String, String>,
}

pub fn by_node(grants: &[Grant]) -> BTreeMap<&str, Vec<&Grant>> {
    let mut nodes: BTreeMap<&str, Vec<&Grant>> = BTreeMap::new();
    for grant in grants {
        nodes.entry(grant.node.as_str()).or_default().push(grant);
    }
    nodes
}

/// Each device belongs to one claim, and none is a share.
pub fn distinct(grants: &[&Grant]) {
    let devices: BTreeSet<&str> = grants.iter().map(|grant| grant.device.as_str()).collect();
    assert_eq!(devices.len(), grants.len(), "{grants:?}");
    assert!(grants.iter().all(|grant| grant.share.is_none()), "{grants:?}");
}

/// At most this many claims on each device, each with one slot and its own share id.
pub fn at_most_a_card(grants: &[&Grant], most: usize) {
    let mut cards: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for grant in grants {
        let share = grant.share.as_deref().expect("a share has an id");
        assert!(cards.entry(&grant.device).or_default().insert(share), "{share} twice");
        assert_eq!(grant.consumed.get("slots").map(String::as_str), Some("1"), "{grant:?}");
    }
    assert!(cards.values().all(|shares| shares.len() <= most), "{cards:?}");
}

/// Each claim's answer names devices of a CDI spec on the disk, which names an existing card or partition; partitions
/// and cards that are not shared are named once.
pub fn prepared(node: &NodeStandIn, pods: &[PreparedPod], grants: &[&Grant]) {
    let machine = node.show().unwrap();
    let mut in_specs: BTreeMap<String, Value> = BTreeMap::new();
    let is_of_devices = |spec: &Value| spec["kind"].as_str().unwrap().ends_with("/claim");
    for spec in node.specs().unwrap().into_iter().filter(is_of_devices) {
        for device in spec["devices"].as_array().unwrap() {
            let id = format!("{}={}", spec["kind"].as_str().unwrap(), device["name"].as_str().unwrap());
            assert!(in_specs.insert(id.clone(), device.clone()).is_none(), "{id} twice");
        }
    }
    assert_eq!(
        (pods.iter().filter(|pod| !pod.claims.is_empty()).count(), in_specs.len()),
        (grants.len(), grants.len())
    );
    let mut exclusive = BTreeSet::new();
    for grant in grants {
        let pod = pods.iter().find(|pod| pod.devices.contains_key(&grant.claim_uid));
        let answer = &pod.unwrap_or_else(|| panic!("{grant:?} is not prepared")).devices[&grant.claim_uid];
        assert_eq!(answer.len(), 1, "{grant:?}: {answer:?}");
        assert_eq!(
            (answer[0].device_name.as_str(), answer[0].share_id.as_deref()),
            (grant.device.as_str(), grant.share.as_deref())
        );
        let [id, ..] = answer[0].cdi_device_ids.as_slice() else { panic!("{answer:?}") };
        assert!(id.contains(&grant.claim_uid), "{id}");
        let uuid = uuid(&in_specs[id]);
        assert!(is_of(&machine, &grant.device, &uuid), "{grant:?} is {uuid}");
        assert!(grant.share.is_some() || exclusive.insert(uuid), "{grant:?}: its device is another's, too");
    }
}

/// The only device that a CDI device makes visible to CUDA.
fn uuid(device: &Value) -> String {
    let variables = device["containerEdits"]["env"].as_array().unwrap().iter();
    let values: Vec<&str> = variables
        .map(|variable| variable.as_str().unwrap().split_once('=').unwrap().1)
        .filter(|value| value.starts_with("GPU-") || value.starts_with("MIG-"))
        .collect();
    let [uuid] = values.as_slice() else { panic!("{device}") };
    (*uuid).to_owned()
}

/// Whether the machine has this UUID at the address in the device's name: `gpu-<bus>-<device>…`.
fn is_of(machine: &Value, device: &str, uuid: &str) -> bool {
    let cards = machine["machine"]["cards"].as_array().unwrap();
    let of_name = cards.iter().position(|card| {
        let address = card["pci"].as_str().unwrap().to_ascii_lowercase();
        let name = address.trim_start_matches("0000:").trim_end_matches(".0").replace(':', "-");
        device == format!("gpu-{name}") || device.starts_with(&format!("gpu-{name}-"))
    });
    let card = of_name.unwrap_or_else(|| panic!("{device} is of no card"));
    if !device.contains("-mig-") {
        return cards[card]["uuid"] == uuid;
    }
    let start: u64 = device.rsplit_once('-').unwrap().1.parse().unwrap();
    let partitions = machine["migDevices"].as_array().unwrap().iter();
    let mut of_card = partitions.filter(|partition| partition["card"] == card && partition["uuid"] == uuid);
    let Some(partition) = of_card.next() else { return false };
    let instances = machine["state"]["cards"][card]["mig"]["instances"].as_array().unwrap();
    let instance = instances.iter().find(|instance| instance["id"] == partition["gpuInstance"]).unwrap();
    instance["start"] == start
}
