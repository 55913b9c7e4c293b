//! Nodes with published devices, and with cards held by others.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    Device, DeviceAttribute, DeviceClass, ResourceClaim, ResourceSlice, ResourceSliceSpec,
};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};
use tessera_api::config::NVIDIA_DRIVER_NAME;
use tessera_api::gpu_pool::Allocation;
use tessera_api::{DEFAULT_DRIVER_NAME, DeviceType, attribute, capacity};
use tessera_cluster::Object;
use tessera_harness::Cluster;
use tessera_simulate::fleet::{Fleet as Simulated, NodeGroup, Pools};

/// Requests at once.
const AT_ONCE: usize = 32;

/// Number of tries of a request to a busy API server, a second apart.
const TRIES: u32 = 30;

/// A card's UUID, the same on every node: nothing depends on one.
const UUID: &str = "GPU-5c8e9a4e-0f3a-4f4e-9d0c-6f1f6f0a7b11";

/// The attributes of whole cards by NVIDIA's driver.
const NVIDIA_ATTRIBUTES: &str = "type uuid productName brand architecture cudaComputeCapability driverVersion \
    cudaDriverVersion addressingMode resource.kubernetes.io/pciBusID resource.kubernetes.io/pcieRoot \
    resource.kubernetes.io/numaNode";

/// The devices published by nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Published {
    /// Whole cards without counters and with fewer attributes, as NVIDIA's driver publishes by default. Always measured.
    Plain,
    /// A pool with whole cards alone.
    Cards,
    /// A pool with whole cards and partitions.
    Partitions,
    /// The same with one partition of each card that a claim holds whole: `ofHeldCards: First`.
    FirstOfHeld,
    /// Whole cards, partitions, and shares by MPS of cards and of 3g.40gb partitions.
    Shares,
}

impl Published {
    /// Its name in arguments.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Plain => "whole cards, by a driver without counters",
            Self::Cards => "whole cards",
            Self::Partitions => "whole cards and partitions",
            Self::FirstOfHeld => "whole cards and partitions, of held cards the first",
            Self::Shares => "whole cards, partitions and shares",
        }
    }

    fn offer(self) -> Value {
        match self {
            Self::Plain | Self::Cards => json!({ "partitioning": { "mode": "None" } }),
            Self::Partitions | Self::FirstOfHeld => json!({}),
            Self::Shares => json!({ "sharing": { "mps": { "partitions": ["3g.40gb"] } } }),
        }
    }
}

/// Equal nodes.
pub struct Fleet {
    /// Number of nodes.
    pub nodes: usize,
    /// The devices published by each.
    pub published: Published,
    /// The name of the driver.
    pub driver: &'static str,
    /// Devices of a node.
    pub devices: Vec<Device>,
    /// Slices of a node.
    pub slices: usize,
    /// Their size as JSON, in bytes.
    pub bytes: usize,
    classes: Vec<DeviceClass>,
    /// The name of the first node.
    first: String,
    /// The first node and its slices: paths of the API with objects.
    objects: Vec<(String, String)>,
}

impl Fleet {
    /// So many machines of this name.
    pub fn new(hardware: &str, nodes: usize, published: Published) -> Result<Self> {
        let mut pools = Pools::default();
        pools.insert("bench", None, &json!({ "offer": published.offer() }))?;
        let group: NodeGroup = format!("1x{hardware}").parse()?;
        let simulated = Simulated::with_pools(&[group], &pools)?;
        let (mut classes, mut node, mut slices) = (Vec::new(), None, Vec::new());
        for object in simulated.objects(Allocation::Native) {
            match object {
                Object::DeviceClass(class) => classes.push(class),
                Object::Node(object) => node = Some(object),
                Object::ResourceSlice(slice) => slices.push(slice),
                _ => {}
            }
        }
        slices.iter_mut().flat_map(|slice| slice.spec.devices.iter_mut().flatten()).for_each(complete);
        let driver = if published == Published::Plain {
            (classes, slices) = plain(&slices)?;
            NVIDIA_DRIVER_NAME
        } else {
            DEFAULT_DRIVER_NAME
        };
        let node = node.context("no node")?;
        let mut objects = vec![(Node::url_path(&(), None), serde_json::to_string(&node)?)];
        for slice in &slices {
            objects.push((ResourceSlice::url_path(&(), None), serde_json::to_string(slice)?));
        }
        let bytes = objects.iter().skip(1).map(|(_, text)| text.len()).sum();
        let count = slices.len();
        let devices = slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default()).collect();
        let first = node.name_any();
        Ok(Self { nodes, published, driver, devices, slices: count, bytes, classes, first, objects })
    }

    fn node(&self, number: usize) -> String {
        let (machine, _) = self.first.rsplit_once('-').unwrap_or((&self.first, ""));
        format!("{machine}-{:04}", number + 1)
    }

    /// The whole cards of a node.
    pub fn cards(&self) -> impl Iterator<Item = &Device> {
        self.devices
            .iter()
            .filter(|device| text_of(device, attribute::TYPE) == Some(DeviceType::Gpu.as_str()))
    }

    /// Makes classes, nodes and slices.
    pub async fn publish(&self, cluster: &Cluster) -> Result<()> {
        let client = cluster.client().await?;
        let classes: Api<DeviceClass> = Api::all(client.clone());
        for class in &self.classes {
            classes.create(&PostParams::default(), class).await?;
        }
        let (client, all) = (
            &client,
            (0..self.nodes).flat_map(|number| self.objects.iter().map(move |object| (number, object))),
        );
        let writes = futures::stream::iter(all).map(|(number, (path, text))| {
            let text = text.replace(&self.first, &self.node(number));
            async move { create(client, path, text).await }
        });
        done("published", self.nodes * self.objects.len(), writes.buffer_unordered(AT_ONCE)).await
    }

    /// Number of held cards of a node, for this percentage of the fleet's: none, the first half or all, so that free
    /// cards have their neighbours.
    fn held_of(&self, number: usize, percent: usize) -> usize {
        let halves = ((number + 1) * 2 * percent) / 100 - (number * 2 * percent) / 100;
        self.cards().count() * halves / 2
    }

    /// How many cards are free.
    pub fn free(&self, percent: usize) -> usize {
        let held: usize = (0..self.nodes).map(|number| self.held_of(number, percent)).sum();
        self.nodes * self.cards().count() - held
    }

    /// Makes claims hold `percent` of the cards; `before` percent are held already.
    pub async fn fill(&self, cluster: &Cluster, before: usize, percent: usize) -> Result<()> {
        let claims: &Api<ResourceClaim> = &Api::default_namespaced(cluster.client().await?);
        let slices: &Api<ResourceSlice> = &Api::all(cluster.client().await?);
        let all: Vec<(usize, usize)> = (0..self.nodes)
            .flat_map(|number| {
                let cards = self.held_of(number, before)..self.held_of(number, percent);
                cards.map(move |card| (number, card))
            })
            .collect();
        let count = all.len();
        let writes = futures::stream::iter(all).map(|(number, card)| async move {
            let name = format!("held-{number}-{card}");
            let node = self.node(number);
            let device = &self.cards().nth(card).context("a card")?.name;
            let claim = json!({
                "metadata": { "name": name },
                "spec": { "devices": { "requests": [{ "name": "gpu", "exactly": { "deviceClassName": self.driver } }] } },
            });
            claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
            let result = json!({ "request": "gpu", "driver": self.driver, "pool": node, "device": device });
            let on_node = json!({ "nodeSelectorTerms": [{ "matchFields": [
                { "key": "metadata.name", "operator": "In", "values": [node] }] }] });
            let allocation = json!({ "devices": { "results": [result] }, "nodeSelector": on_node });
            let status = Patch::Merge(json!({ "status": { "allocation": allocation } }));
            claims.patch_status(&name, &PatchParams::default(), &status).await?;
            if self.published == Published::FirstOfHeld {
                self.keep_first_partition(slices, number, card).await?;
            }
            anyhow::Ok(())
        });
        done("held", count, writes.buffer_unordered(AT_ONCE)).await
    }

    /// Publishes of a held card's partitions the first alone, as the plugin does.
    async fn keep_first_partition(
        &self,
        slices: &Api<ResourceSlice>,
        number: usize,
        card: usize,
    ) -> Result<()> {
        let suffix = format!("2-partitions-{card:04}");
        let slice = self.objects.iter().skip(1).map(|(_, text)| serde_json::from_str::<ResourceSlice>(text));
        let slice = slice
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .find(|slice| slice.name_any().ends_with(&suffix));
        let slice = slice.context("no slice of the card's partitions")?;
        let first = slice.spec.devices.iter().flatten().take(1).collect::<Vec<_>>();
        let name = slice.name_any().replace(&self.first, &self.node(number));
        let patch = Patch::Merge(json!({ "spec": { "devices": first } }));
        slices.patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// The string of an attribute.
pub fn text_of<'d>(device: &'d Device, attribute: &str) -> Option<&'d str> {
    device.attributes.as_ref()?.get(attribute)?.string.as_deref()
}

/// Adds attributes reported by machines and missing in some data files.
fn complete(device: &mut Device) {
    let is_whole = text_of(device, attribute::TYPE) == Some(DeviceType::Gpu.as_str());
    let attributes = device.attributes.get_or_insert_default();
    let text = |value: &str| DeviceAttribute { string: Some(value.to_owned()), ..DeviceAttribute::default() };
    let uuid = if is_whole { attribute::UUID } else { attribute::PARENT_UUID };
    attributes.insert(uuid.to_owned(), text(UUID));
    attributes.insert(attribute::ADDRESSING_MODE.to_owned(), text("HMM"));
    attributes.entry(attribute::PCIE_ROOT.to_owned()).or_insert_with(|| text("pci0000:15"));
}

/// The whole cards of a node's slices as NVIDIA's driver publishes them, with its class.
fn plain(slices: &[ResourceSlice]) -> Result<(Vec<DeviceClass>, Vec<ResourceSlice>)> {
    let driver = NVIDIA_DRIVER_NAME;
    let all = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let devices = all.enumerate().map(|(number, device)| {
        let mut device = Device { name: format!("gpu-{number}"), consumes_counters: None, ..device.clone() };
        let attributes = device.attributes.iter_mut();
        attributes
            .for_each(|all| all.retain(|name, _| NVIDIA_ATTRIBUTES.split(' ').any(|known| known == name)));
        device.capacity.iter_mut().for_each(|all| all.retain(|name, _| name == capacity::MEMORY));
        device
    });
    let mut slice = slices.first().context("no slices")?.clone();
    let node = slice.spec.node_name.clone().context("a slice of no node")?;
    slice.metadata.annotations = None;
    slice.spec = ResourceSliceSpec {
        driver: driver.to_owned(),
        devices: Some(devices.collect()),
        shared_counters: None,
        ..slice.spec
    };
    slice.spec.pool.resource_slice_count = 1;
    slice.spec.pool.name.clone_from(&node);
    let expression =
        format!("device.driver == '{driver}' && device.attributes['{driver}'].{} == 'gpu'", attribute::TYPE);
    let class = json!({ "metadata": { "name": driver },
        "spec": { "selectors": [{ "cel": { "expression": expression } }] } });
    Ok((vec![serde_json::from_value(class)?], vec![slice]))
}

/// Creates an object, again where the API server has too much to do.
async fn create(client: &Client, path: &str, object: String) -> Result<()> {
    let mut tries = 0;
    loop {
        tries += 1;
        let bytes = object.clone().into_bytes();
        let request = kube::core::Request::new(path).create(&PostParams::default(), bytes)?;
        match client.request_text(request).await {
            Ok(_) => return Ok(()),
            // The answer to an earlier try was lost.
            Err(kube::Error::Api(status)) if status.code == 409 && tries > 1 => return Ok(()),
            Err(error) if tries == TRIES || !is_busy(&error) => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

fn is_busy(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        // No answer.
        _ => true,
    }
}

/// Waits for all writes, and says how far they are every tenth of them.
async fn done(what: &str, count: usize, writes: impl Stream<Item = Result<()>>) -> Result<()> {
    let mut writes = std::pin::pin!(writes.enumerate());
    let begun = Instant::now();
    while let Some((number, written)) = writes.next().await {
        written?;
        if (number + 1) * 10 / count != number * 10 / count {
            let seconds = begun.elapsed().as_secs();
            eprintln!("{what}: {} of {count} objects after {seconds} s", number + 1);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_driver_has_whole_cards_without_counters() {
        let [plain, partitions, shares] = [Published::Plain, Published::Partitions, Published::Shares]
            .map(|published| Fleet::new("hgx-h100-80gb", 10, published).unwrap());
        assert_eq!((plain.devices.len(), plain.slices), (8, 1));
        for device in &plain.devices {
            assert_eq!((&device.consumes_counters, device.attributes.as_ref().unwrap().len()), (&None, 12));
        }
        assert_eq!(plain.cards().count(), partitions.cards().count());
        assert_eq!(shares.devices.len(), partitions.devices.len() + 8 * 3);
    }

    #[test]
    fn held_cards_leave_neighbours_free() {
        let fleet = Fleet::new("hgx-h100-80gb", 10, Published::Plain).unwrap();
        assert_eq!([0, 50, 90, 100].map(|percent| fleet.free(percent)), [80, 40, 8, 0]);
        let held: Vec<usize> = (0..10).map(|number| fleet.held_of(number, 90)).collect();
        assert_eq!(held, [4, 8, 8, 8, 8, 4, 8, 8, 8, 8]);
    }
}
