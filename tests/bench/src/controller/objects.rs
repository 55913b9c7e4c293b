//! The objects of a large fleet, each made on request: together they are more than a gigabyte.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use k8s_openapi::api::resource::v1::ResourceSliceSpec;
use serde_json::{Value, json};
use tessera_api::DEFAULT_DRIVER_NAME as DRIVER;
use tessera_api::DeviceName;
use tessera_api::facts::ComputeCapability;
use tessera_api::offer::PlacementOrder;
use tessera_api::steering::GATE;
use tessera_api::usage::{CardUsage, ClaimUsage, DeviceUsage, NodeUsage};

use crate::mig_order::model::Model;

/// Cards of each node: as in an HGX H100, with 208 devices.
const CARDS: usize = 8;

/// Cards of each node held by pods.
const HELD: usize = 4;

/// In the templates of slices: the node's own part of its name, and of its cards' UUIDs.
const OWN: &str = "ffffffff";

/// A fleet.
pub struct Objects {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of pods with the gate.
    pub waiting: usize,
    /// The slices of a node, each cut at [`OWN`]: searching a gigabyte takes longer than reading a gigabyte.
    slices: Vec<Vec<String>>,
    /// Names of a node's whole cards.
    cards: Vec<String>,
    devices: usize,
}

/// The existing kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two of them.
    DeviceClass,
    /// One.
    GpuPool,
    /// With all of a server's room.
    Node,
    /// Of running pods, then waiting ones.
    Pod,
    /// A pod of the kubelet plugin for each node.
    Plugin,
    /// One for each pod.
    ResourceClaim,
    /// As the plugin publishes them.
    ResourceSlice,
}

impl Objects {
    /// The plugin's slices for 8 H100 on each node, half of them held.
    ///
    /// # Errors
    /// When the slices cannot be made.
    pub fn new(nodes: usize, waiting: usize) -> Result<Self> {
        let mut machine = Model::named("H100-80GB")?.machine(CARDS)?;
        machine.driver_version = Some("580.95.05".to_owned());
        machine.cuda_driver_version = Some(13_000);
        for (number, card) in machine.cards.iter_mut().enumerate() {
            card.uuid = Some(format!("GPU-{OWN}-0000-4000-8000-{number:012x}"));
            card.product_name = Some("NVIDIA H100 80GB HBM3".to_owned());
            card.brand = Some("Nvidia".to_owned());
            card.architecture = Some("Hopper".to_owned());
            card.compute_capability = Some(ComputeCapability { major: 9, minor: 0 });
            card.memory_bytes = Some(81_559 << 20);
            card.numa_node = u32::try_from(number / 4).ok();
            card.pcie_root = Some(format!("pci0000:{number:02x}"));
        }
        let pool = Model::publish(&machine, PlacementOrder::Balanced)?;
        let cards: Vec<String> =
            pool.device_names().map(|name| name.to_string()).filter(|name| !name.contains("-mig-")).collect();
        anyhow::ensure!(cards.len() == CARDS, "{} whole cards", cards.len());
        let in_pool = json!({ "pool": "main", "allocation": "Steered" });
        let reported: serde_json::Map<String, Value> =
            machine.cards.iter().map(|card| (card.pci.to_string(), in_pool.clone())).collect();
        let report = json!({ "cards": reported, "otherPairs": "SYS" }).to_string();
        let (count, node) = (pool.slices.len(), format!("node-{OWN}"));
        let slice = |(position, slice): (usize, &tessera_inventory::pool::Slice)| {
            let mut spec: ResourceSliceSpec = serde_json::from_value(
                json!({ "driver": DRIVER, "nodeName": node,
                "pool": { "name": format!("{DRIVER}/{node}"), "generation": 1, "resourceSliceCount": count } }),
            )?;
            slice.contents.put_into(&mut spec);
            let name = format!("{node}-{}", slice.name_suffix);
            let mut metadata = json!({ "name": name, "uid": name, "resourceVersion": "1" });
            if position == 0 {
                metadata["annotations"] = json!({ tessera_api::node_report::ANNOTATION: report });
            }
            let text = json!({ "metadata": metadata, "spec": spec }).to_string();
            Ok(text.split(OWN).map(str::to_owned).collect())
        };
        let slices = pool.slices.iter().enumerate().map(slice).collect::<Result<Vec<_>>>()?;
        Ok(Self { nodes, waiting, slices, cards, devices: pool.device_names().count() })
    }

    /// Devices of all nodes.
    pub fn devices(&self) -> usize {
        self.nodes * self.devices
    }

    /// Pods with a card each.
    pub fn running(&self) -> usize {
        self.nodes * HELD
    }

    /// How many there are of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::DeviceClass | Kind::GpuPool => 1,
            Kind::Node | Kind::Plugin => self.nodes,
            Kind::Pod | Kind::ResourceClaim => self.running() + self.waiting,
            Kind::ResourceSlice => self.nodes * self.slices.len(),
        }
    }

    /// One of them, as JSON without its kind.
    pub fn object(&self, kind: Kind, number: usize) -> String {
        match kind {
            Kind::DeviceClass => {
                let whole =
                    format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'");
                json!({ "metadata": metadata("gpu"), "spec": { "selectors": [{ "cel": { "expression": whole } }] } })
                    .to_string()
            }
            Kind::GpuPool => {
                json!({ "metadata": metadata("main"), "spec": { "allocation": "Steered" } }).to_string()
            }
            Kind::Node => json!({ "metadata": metadata(&node(number)), "status": {
                "allocatable": { "cpu": "192", "memory": "2Ti", "pods": "110" } } })
            .to_string(),
            Kind::Pod | Kind::Plugin => self.pod(number),
            Kind::ResourceClaim => self.claim(number),
            Kind::ResourceSlice => {
                self.slices[number % self.slices.len()].join(&own(number / self.slices.len()))
            }
        }
    }

    /// The pod of a node's kubelet plugin, serving at this address.
    pub fn plugin(&self, number: usize, address: SocketAddr) -> String {
        let ports = json!([{ "name": "http", "containerPort": address.port() }]);
        json!({
            "metadata": { "name": format!("plugin-{number}"), "namespace": "tessera-system", "resourceVersion": "1" },
            "spec": { "nodeName": node(number), "containers": [{ "name": "plugin", "ports": ports }] },
            "status": { "phase": "Running", "podIP": address.ip() },
        })
        .to_string()
    }

    /// The usage reported by a node's plugin for its cards and claims; the claims have the names of the first node's.
    ///
    /// # Errors
    /// When the usage cannot be made.
    pub fn usage(&self) -> Result<NodeUsage> {
        let card = CardUsage {
            uuid: format!("GPU-{OWN}-0000-4000-8000-000000000000"),
            product_name: "NVIDIA H100 80GB HBM3".to_owned(),
            memory_total_mib: 81_559,
            memory_used_mib: Some(40_000),
            sm_activity: Some(0.25),
            power_watts: Some(350.0),
            temperature_celsius: Some(55.0),
            processes: Some(1),
        };
        let mut usage = NodeUsage { at: 1, ..NodeUsage::default() };
        for device in &self.cards {
            let name: DeviceName = device.parse()?;
            usage.cards.insert(name.card(), card.clone());
        }
        for (number, device) in self.cards.iter().take(HELD).enumerate() {
            let name = format!("pod-{number}");
            let device = DeviceUsage {
                device: device.clone(),
                memory_granted_mib: 81_079,
                sm_granted: Some(1.0),
                memory_used_mib: Some(40_000),
                sm_activity: Some(0.25),
            };
            let (name, uid) = (format!("{name}-c"), format!("{name}-c"));
            let claim = ClaimUsage {
                namespace: "work".to_owned(),
                name,
                uid,
                devices: vec![device],
                ..ClaimUsage::default()
            };
            usage.claims.push(claim);
        }
        Ok(usage)
    }

    /// The number of a pod by its name.
    ///
    /// # Errors
    /// There is no such pod.
    pub fn pod_of(&self, name: &str) -> Result<usize> {
        let number = name.strip_prefix("pod-").and_then(|number| number.parse().ok());
        number.filter(|number| *number < self.count(Kind::Pod)).with_context(|| format!("no pod {name}"))
    }

    fn pod(&self, number: usize) -> String {
        let name = format!("pod-{number}");
        let runs_on = (number < self.running()).then(|| node(number / HELD));
        let gates = if runs_on.is_some() { json!([]) } else { json!([{ "name": GATE }]) };
        json!({
            "metadata": in_namespace(&name),
            "spec": { "schedulingGates": gates, "nodeName": runs_on,
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1", "memory": "1Gi" },
                    "claims": [{ "name": "c" }] } }],
                "resourceClaims": [{ "name": "c", "resourceClaimTemplateName": "t" }] },
            "status": { "phase": if runs_on.is_some() { "Running" } else { "Pending" },
                "resourceClaimStatuses": [{ "name": "c", "resourceClaimName": format!("{name}-c") }] },
        })
        .to_string()
    }

    fn claim(&self, number: usize) -> String {
        let pod = format!("pod-{number}");
        let mut metadata = in_namespace(&format!("{pod}-c"));
        metadata["ownerReferences"] =
            json!([{ "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": true }]);
        let is_held = number < self.running();
        let count = if is_held { 1 } else { [1, 2, 4][number % 3] };
        let mut claim = json!({ "metadata": metadata, "spec": { "devices": { "requests": [{ "name": "r",
            "exactly": { "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count } }] } } });
        if is_held {
            // Other cards on each node.
            let card = &self.cards[(number / HELD + number % HELD) % CARDS];
            let pool = format!("{DRIVER}/{}", node(number / HELD));
            claim["status"] = json!({ "allocation": { "devices": { "results": [
                { "request": "r", "driver": DRIVER, "pool": pool, "device": card }] } } });
        }
        claim.to_string()
    }
}

fn own(number: usize) -> String {
    format!("{number:08x}")
}

fn node(number: usize) -> String {
    format!("node-{}", own(number))
}

fn metadata(name: &str) -> Value {
    json!({ "name": name, "uid": name, "resourceVersion": "1" })
}

fn in_namespace(name: &str) -> Value {
    json!({ "name": name, "namespace": "work", "uid": name, "resourceVersion": "1" })
}
