//! The cards of a node: their connections, groups and holders.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{Device, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice};
use serde::Serialize;
use tessera_api::gpu_pool::Allocation;
use tessera_api::node_report::PoolReport;
use tessera_api::{DeviceName, NodeReport, PciBusId, attribute};
use tessera_cluster::{ClaimExt, Objects, reference};

use crate::devices;
use crate::reports::Report;

/// Attributes whose equal values make cards a group, as they are printed.
pub const GROUPS: [&str; 5] = [
    attribute::NVLINK_GROUP_2,
    attribute::NVLINK_GROUP_4,
    attribute::ALIGN_GROUP_2,
    attribute::ALIGN_GROUP_4,
    attribute::NVLINK_DOMAIN,
];

/// A node with its cards.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// The node.
    pub node: String,
    /// Whether the plugin reports the connections of cards.
    pub reported: bool,
    /// The cards by address.
    pub cards: Vec<Card>,
    /// Every two cards, the lower address first.
    pub links: Vec<Link>,
    /// Problems of its cards' GpuPools reported by the plugin, by pool name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub troubles: BTreeMap<String, String>,
}

/// A card.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    /// Its PCI address.
    pub address: String,
    /// NVML's index in this boot.
    pub index: Option<i64>,
    /// Its marketing name.
    pub product_name: Option<String>,
    /// Its NUMA node.
    pub numa_node: Option<i64>,
    /// The deciding GpuPool.
    pub pool: Option<String>,
    /// Allocator of the card, if reported by the plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
    /// Other pools selecting the card, of lower precedence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outranked: Vec<String>,
    /// Values of the grouping attributes.
    pub groups: BTreeMap<String, String>,
    /// Why the card takes no new claims, if closed to them: `xid-79`, `mig-layout-pending`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Whether any of its devices is published.
    pub is_published: bool,
    /// Holders of the card's devices.
    pub held: Vec<Held>,
    /// Devices no longer offered, ending with their claims.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
}

/// A device of a claim, or a share of one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The device.
    pub device: String,
    /// Kind of the device: `whole card`, `partition 1g.10gb at slice 6`.
    pub what: String,
    /// `namespace/name` of the claim.
    pub claim: String,
    /// Users of the claim: usually pods of the same namespace.
    pub by: Vec<String>,
    /// Capacity consumed by a share.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub consumes: BTreeMap<String, String>,
}

/// How two cards are connected.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// The cards' addresses.
    pub cards: (String, String),
    /// Number of NVLinks.
    pub nvlinks: u32,
    /// Closeness on PCIe; `None` if not reported.
    pub pcie: Option<String>,
}

impl Link {
    /// In the notation of `nvidia-smi topo -m`: NVLinks outrank PCIe.
    pub fn text(&self) -> String {
        match (self.nvlinks, &self.pcie) {
            (0, Some(pcie)) => pcie.clone(),
            (0, None) => "?".to_owned(),
            (nvlinks, _) => format!("NV{nvlinks}"),
        }
    }
}

/// Nodes with cards: a node and its number of cards, products and pools.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    /// The node.
    pub node: String,
    /// Number of cards.
    pub cards: usize,
    /// Cards with a device of some claim.
    pub used: usize,
    /// Cards taking no new claims, or without published devices.
    pub out: usize,
    /// Products of the cards.
    pub products: BTreeSet<String>,
    /// GpuPools of the cards.
    pub pools: BTreeSet<String>,
    /// Whether the plugin reports their connections.
    pub reported: bool,
}

impl NodeSummary {
    /// Of a topology.
    pub fn of(topology: &Topology) -> Self {
        let cards = topology.cards.iter();
        NodeSummary {
            node: topology.node.clone(),
            cards: topology.cards.len(),
            used: cards.clone().filter(|card| !card.held.is_empty()).count(),
            out: cards.clone().filter(|card| card.fault.is_some() || !card.is_published).count(),
            products: cards.clone().filter_map(|card| card.product_name.clone()).collect(),
            pools: cards.filter_map(|card| card.pool.clone()).collect(),
            reported: topology.reported,
        }
    }
}

/// All nodes with cards, or the one.
pub fn of_nodes(objects: &Objects, reports: &BTreeMap<&str, Report>, only: Option<&str>) -> Vec<Topology> {
    let is_wanted = |node: &str| only.is_none_or(|only| only == node);
    let mut found: BTreeMap<&str, BTreeMap<PciBusId, Card>> = BTreeMap::new();
    let places = devices::devices(objects.slices.values());
    let mut of_devices: BTreeMap<(&str, &str, &str), (&str, DeviceName, &Device)> = BTreeMap::new();
    for place in &places {
        let Some(node) = node_of(place.slice, place.device).filter(|node| is_wanted(node)) else { continue };
        // The devices of other drivers have other names; where the plugin reports, its driver's name is known, too.
        let is_other = reports.get(node).is_some_and(|report| report.driver != place.id.driver);
        let Some(name) = place.id.device.parse::<DeviceName>().ok().filter(|_| !is_other) else { continue };
        let cards = found.entry(node).or_default();
        cards.entry(name.card()).or_default().take_in(place.device, &place.id.driver);
        let id = &place.id;
        of_devices.insert((&id.driver, &id.pool, &id.device), (node, name, place.device));
    }
    for (node, report) in reports.iter().filter(|(node, _)| is_wanted(node)) {
        let cards = found.entry(node).or_default();
        for (address, said) in &report.report.cards {
            let card = cards.entry(*address).or_default();
            card.pool.clone_from(&said.pool);
            card.allocation = Some(said.allocation);
            card.outranked.clone_from(&said.outranked);
            card.waits_for.clone_from(&said.waits_for);
        }
    }
    for claim in objects.claims.values() {
        for result in claim.results() {
            let id = (result.driver.as_str(), result.pool.as_str(), result.device.as_str());
            let Some((node, name, device)) = of_devices.get(&id) else { continue };
            let card = found.get_mut(node).and_then(|cards| cards.get_mut(&name.card()));
            if let Some(card) = card.filter(|_| result.admin_access != Some(true)) {
                card.held.push(Held::of(claim, result, name, device));
            }
        }
    }
    let with_cards = found.into_iter().filter(|(_, cards)| !cards.is_empty());
    with_cards.map(|(node, cards)| topology(node, cards, reports.get(node))).collect()
}

fn node_of<'s>(slice: &'s ResourceSlice, device: &'s Device) -> Option<&'s str> {
    device.node_name.as_deref().or(slice.spec.node_name.as_deref())
}

fn topology(node: &str, cards: BTreeMap<PciBusId, Card>, report: Option<&Report>) -> Topology {
    let addresses: Vec<PciBusId> = cards.keys().copied().collect();
    let report = report.map(|report| &report.report);
    let nvlinks: BTreeMap<(PciBusId, PciBusId), u32> = report
        .into_iter()
        .flat_map(|report| &report.links)
        .map(|(a, b, count)| (pair(*a, *b), *count))
        .collect();
    let pcie: BTreeMap<(PciBusId, PciBusId), &str> = report
        .into_iter()
        .flat_map(|report| &report.pcie)
        .map(|(a, b, level)| (pair(*a, *b), level.as_str()))
        .collect();
    let others = report.and_then(|report| report.other_pairs.as_deref());
    let mut links = Vec::new();
    for (index, one) in addresses.iter().enumerate() {
        for other in &addresses[index + 1..] {
            let cards = pair(*one, *other);
            links.push(Link {
                cards: (one.to_string(), other.to_string()),
                nvlinks: nvlinks.get(&cards).copied().unwrap_or(0),
                pcie: pcie.get(&cards).copied().or(others).map(str::to_owned),
            });
        }
    }
    let cards = cards.into_iter().map(|(address, mut card)| {
        card.held.sort();
        Card { address: address.to_string(), ..card }
    });
    Topology {
        node: node.to_owned(),
        reported: report.is_some_and(says_links),
        cards: cards.collect(),
        links,
        troubles: report.map(troubles).unwrap_or_default(),
    }
}

fn troubles(report: &NodeReport) -> BTreeMap<String, String> {
    let said = |(name, pool): (&String, &PoolReport)| Some((name.clone(), pool.error.clone()?));
    report.pools.iter().filter_map(said).collect()
}

/// Whether the plugin reports the connections of cards. A single card has none.
fn says_links(report: &NodeReport) -> bool {
    report.other_pairs.is_some()
        || !report.links.is_empty()
        || !report.pcie.is_empty()
        || report.cards.len() == 1
}

fn text_of(device: &Device, attribute: &str) -> Option<String> {
    device.attributes.as_ref()?.get(attribute)?.string.clone()
}

fn pair(one: PciBusId, other: PciBusId) -> (PciBusId, PciBusId) {
    (one.min(other), one.max(other))
}

impl Card {
    /// Takes the card's properties from one of its devices. The device for the whole card, partitions and shares have the same
    /// attributes; the published devices depend on the pool.
    fn take_in(&mut self, device: &Device, driver: &str) {
        self.is_published = true;
        self.fault = self.fault.take().or_else(|| devices::fault(device, driver));
        let text = |name: &str| text_of(device, name);
        let attributes = device.attributes.as_ref();
        let number = |name: &str| attributes.and_then(|all| all.get(name)?.int);
        self.index = self.index.or_else(|| number(attribute::INDEX));
        self.numa_node = self.numa_node.or_else(|| number(attribute::NUMA_NODE));
        self.product_name = self.product_name.take().or_else(|| text(attribute::PRODUCT_NAME));
        self.pool = self.pool.take().or_else(|| text(attribute::GPU_POOL));
        for name in GROUPS {
            if let Some(value) = text(name) {
                self.groups.entry(name.to_owned()).or_insert(value);
            }
        }
    }

    /// `GPU0`; the address where the index is not published.
    pub fn title(&self) -> String {
        self.index.map_or_else(|| self.address.clone(), |index| format!("GPU{index}"))
    }
}

impl Held {
    /// A device of the claim.
    pub fn of(
        claim: &ResourceClaim,
        result: &DeviceRequestAllocationResult,
        name: &DeviceName,
        device: &Device,
    ) -> Self {
        let of_card = match name.partition() {
            Some(partition) => {
                // In NVIDIA's spelling, if published.
                let profile = text_of(device, attribute::PROFILE);
                let profile = profile.unwrap_or_else(|| partition.profile.to_string());
                format!("partition {profile} at slice {}", partition.start)
            }
            None => "whole card".to_owned(),
        };
        let what = match name {
            DeviceName::Mps(_) => "share by MPS".to_owned(),
            DeviceName::PartitionMps(_) => format!("share by MPS of {of_card}"),
            DeviceName::TimeSlice(_) => "share by time-slicing".to_owned(),
            _ => of_card,
        };
        let users = claim.users().iter();
        let consumed = result.consumed_capacity.iter().flatten();
        Held {
            device: result.device.clone(),
            what,
            claim: reference(claim),
            by: users.map(|user| format!("{}/{}", user.resource.trim_end_matches('s'), user.name)).collect(),
            consumes: consumed.map(|(name, quantity)| (name.clone(), quantity.0.clone())).collect(),
        }
    }
}
