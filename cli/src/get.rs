//! Rows of `kubectl gpu get`: devices with their holders, and claims with their devices.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::ResourceClaim;
use serde::Serialize;
use tessera_api::{DeviceName, PciBusId, attribute, capacity};
use tessera_cluster::{ClaimExt, DeviceClaimExt, Objects, reference};

use crate::devices::{self, Place};
use crate::topology::Held;

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceRow {
    /// Its node.
    pub node: String,
    /// Its name.
    pub device: String,
    /// `gpu`, `mig`, `mps`, `timeslice`.
    #[serde(rename = "type")]
    pub device_type: String,
    /// Profile of a partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Product of the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Its memory, as published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The deciding GpuPool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// UUID of a card or an existing partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Keys and values of its taints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
    /// Holders of the device.
    pub held: Vec<Held>,
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRow {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub claim: String,
    /// `waits`, `allocated` (not used yet), `in use`.
    pub state: &'static str,
    /// The claim's devices.
    pub devices: Vec<String>,
    /// Their nodes.
    pub nodes: Vec<String>,
    /// Its users: usually pods of its namespace.
    pub by: Vec<String>,
    /// Classes named by the claim.
    pub classes: Vec<String>,
}

/// The devices. Unless `all` are wanted, unallocated partitions are left out for cards with other offers too: a card has dozens
/// of them.
pub fn devices(objects: &Objects, node: Option<&str>, namespace: Option<&str>, all: bool) -> Vec<DeviceRow> {
    let places = devices::devices(objects.slices.values());
    let mut held: BTreeMap<(&str, &str, &str), Vec<(&ResourceClaim, _)>> = BTreeMap::new();
    for claim in objects.claims.values().map(AsRef::as_ref) {
        for result in claim.results() {
            let id = (result.driver.as_str(), result.pool.as_str(), result.device.as_str());
            held.entry(id).or_default().push((claim, result));
        }
    }
    let named =
        || places.iter().filter_map(|place| Some((place, place.id.device.parse::<DeviceName>().ok()?)));
    // Cards with offers other than partitions.
    let undivided: BTreeSet<(&str, PciBusId)> = named()
        .filter(|(_, name)| name.partition().is_none())
        .map(|(place, name)| (place.node(), name.card()))
        .collect();
    let mut rows = Vec::new();
    // Devices of other drivers have other names.
    for (place, name) in named().filter(|(place, _)| node.is_none_or(|node| node == place.node())) {
        let id = (place.id.driver.as_str(), place.id.pool.as_str(), place.id.device.as_str());
        let holders = held.get(&id).map(Vec::as_slice).unwrap_or_default();
        let of_namespace = |claim: &ResourceClaim| {
            namespace.is_none_or(|namespace| claim.metadata.namespace.as_deref() == Some(namespace))
        };
        let mut holders: Vec<Held> = holders
            .iter()
            .filter(|(claim, _)| of_namespace(claim))
            .map(|(claim, result)| Held::of(claim, result, &name, place.device))
            .collect();
        holders.sort();
        let is_one_of_many = name.partition().is_some() && undivided.contains(&(place.node(), name.card()));
        let is_wanted = !holders.is_empty() || (namespace.is_none() && (all || !is_one_of_many));
        if is_wanted {
            rows.push(DeviceRow::of(place, holders));
        }
    }
    rows.sort_by(|one, other| (&one.node, &one.device).cmp(&(&other.node, &other.device)));
    rows
}

impl DeviceRow {
    fn of(place: &Place<'_>, held: Vec<Held>) -> Self {
        let attributes = place.device.attributes.as_ref();
        let text = |name: &str| attributes.and_then(|all| all.get(name)?.string.clone());
        let memory = place.device.capacity.as_ref().and_then(|all| all.get(capacity::MEMORY));
        let taints = place.device.taints.iter().flatten().map(|taint| match taint.value.as_deref() {
            Some(value) if !value.is_empty() => format!("{}={value}", taint.key),
            _ => taint.key.clone(),
        });
        DeviceRow {
            node: place.node().to_owned(),
            device: place.id.device.clone(),
            device_type: text(attribute::TYPE).unwrap_or_default(),
            profile: text(attribute::PROFILE),
            product: text(attribute::PRODUCT_NAME),
            memory: memory.map(|memory| memory.value.0.clone()),
            pool: text(attribute::GPU_POOL),
            uuid: text(attribute::UUID),
            taints: taints.collect(),
            held,
        }
    }
}

/// Claims with devices of ours, and waiting ones.
pub fn claims(objects: &Objects, node: Option<&str>, namespace: Option<&str>) -> Vec<ClaimRow> {
    let places = devices::devices(objects.slices.values());
    let nodes: BTreeMap<(&str, &str, &str), &str> = places
        .iter()
        .filter(|place| place.id.device.parse::<DeviceName>().is_ok())
        .map(|place| {
            ((place.id.driver.as_str(), place.id.pool.as_str(), place.id.device.as_str()), place.node())
        })
        .collect();
    let mut rows = Vec::new();
    for claim in objects.claims.values().map(AsRef::as_ref) {
        if namespace.is_some_and(|namespace| claim.metadata.namespace.as_deref() != Some(namespace)) {
            continue;
        }
        let mut devices = Vec::new();
        let mut on: Vec<String> = Vec::new();
        for result in claim.results() {
            let id = (result.driver.as_str(), result.pool.as_str(), result.device.as_str());
            if let Some(place) = nodes.get(&id) {
                devices.push(result.device.clone());
                on.push((*place).to_owned());
            }
        }
        on.sort();
        on.dedup();
        let is_others = claim.has_devices() && devices.is_empty();
        if is_others || node.is_some_and(|node| !on.iter().any(|on| on == node)) {
            continue;
        }
        let state = match (claim.allocation(), claim.users()) {
            (None, _) => "waits",
            (Some(_), []) => "allocated",
            (Some(_), _) => "in use",
        };
        let requests = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
        let classes: BTreeSet<&str> =
            requests.into_iter().flat_map(DeviceClaimExt::asked).map(|(class, _)| class).collect();
        let name = reference(claim);
        let (namespace, name) = name.split_once('/').unwrap_or(("", &name));
        rows.push(ClaimRow {
            namespace: namespace.to_owned(),
            claim: name.to_owned(),
            state,
            devices,
            nodes: on,
            by: claim
                .users()
                .iter()
                .map(|user| format!("{}/{}", user.resource.trim_end_matches('s'), user.name))
                .collect(),
            classes: classes.into_iter().map(str::to_owned).collect(),
        });
    }
    rows
}
