//! Devices a pod would get on a node: the first that fit, in published order.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod};
use k8s_openapi::api::resource::v1::{
    AllocationResult, Device, DeviceAllocationResult, DeviceRequest, DeviceRequestAllocationResult,
};

use super::devices::{Counters, Published, consumed, is_managed};
use super::{Asked, Holdings, View, asked, node_of};
use crate::objects::DRIVER;

/// Devices allowed for a fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Devices allocated by kube-scheduler.
    Native,
    /// Devices allocated by the controller.
    Managed,
    Any,
}

/// One requested device.
struct Slot<'v> {
    /// Index of the claim among the pod's claims.
    claim: usize,
    request: String,
    class: &'v str,
}

/// A search on one node.
struct Search<'s> {
    published: &'s Published<'s>,
    slots: &'s [Slot<'s>],
    is_free: Vec<bool>,
    left: Counters,
    chosen: Vec<usize>,
}

/// Allocations for the pod's open claims on the node, by index among the pod's claims; `None` where the pod does not fit.
pub fn fit(
    view: &View,
    holdings: &Holdings,
    pod: &Pod,
    node: &Node,
    offer: Offer,
) -> Option<BTreeMap<usize, AllocationResult>> {
    fits(view, holdings, pod, node, offer).next()
}

/// The same for each choice that the claims leave (`firstAvailable`), the first choice first.
pub fn fits<'a>(
    view: &'a View,
    holdings: &'a Holdings,
    pod: &'a Pod,
    node: &'a Node,
    offer: Offer,
) -> impl Iterator<Item = BTreeMap<usize, AllocationResult>> + 'a {
    let claims = asked(view, pod).unwrap_or_default();
    let alternatives = |request: &DeviceRequest| request.first_available.as_ref().map_or(1, Vec::len);
    let count = claims.iter().flat_map(|asked| asked.requests()).map(alternatives).max().unwrap_or(1);
    (0..count).filter_map(move |choice| fit_choice(view, holdings, pod, node, offer, choice))
}

fn fit_choice(
    view: &View,
    holdings: &Holdings,
    pod: &Pod,
    node: &Node,
    offer: Offer,
    choice: usize,
) -> Option<BTreeMap<usize, AllocationResult>> {
    let name = node.metadata.name.as_deref()?;
    let claims = asked(view, pod)?;
    let is_elsewhere =
        |asked: &Asked<'_>| asked.allocation().is_some_and(|allocation| node_of(allocation) != Some(name));
    if is_cordoned(node) || claims.iter().any(is_elsewhere) || !holdings.has_room(node, pod) {
        return None;
    }
    let slots: Vec<Slot<'_>> =
        claims.iter().enumerate().flat_map(|(claim, asked)| slots(claim, *asked, choice)).collect();
    if slots.is_empty() {
        return Some(BTreeMap::new());
    }
    let published = Published::of_node(view, name);
    let is_free = |(pool, device): &(&str, &Device)| {
        let is_offered = offer == Offer::Any || is_managed(device) == (offer == Offer::Managed);
        is_offered && !holdings.contains(&((*pool).to_owned(), device.name.clone()))
    };
    let mut search = Search {
        is_free: published.devices.iter().map(is_free).collect(),
        left: holdings.left(&published),
        published: &published,
        slots: &slots,
        chosen: Vec::new(),
    };
    if !published.is_complete || !search.go_on() {
        return None;
    }
    let mut results: BTreeMap<usize, AllocationResult> = BTreeMap::new();
    for (slot, number) in slots.iter().zip(&search.chosen) {
        let (pool, device) = published.devices[*number];
        let allocation = results.entry(slot.claim).or_insert_with(|| empty(name));
        let result = DeviceRequestAllocationResult {
            request: slot.request.clone(),
            driver: DRIVER.to_owned(),
            pool: pool.to_owned(),
            device: device.name.clone(),
            ..DeviceRequestAllocationResult::default()
        };
        allocation.devices.get_or_insert_default().results.get_or_insert_default().push(result);
    }
    Some(results)
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true))
}

/// Devices requested by the claim; none if already allocated.
fn slots(claim: usize, asked: Asked<'_>, choice: usize) -> impl Iterator<Item = Slot<'_>> {
    let open = asked.allocation().is_none();
    asked.requests().filter(move |_| open).flat_map(move |request| {
        let (name, class, count) = match (&request.exactly, &request.first_available) {
            (Some(exactly), _) => (request.name.clone(), &exactly.device_class_name, exactly.count),
            (_, Some(all)) => {
                let chosen = &all[choice.min(all.len() - 1)];
                (format!("{}/{}", request.name, chosen.name), &chosen.device_class_name, chosen.count)
            }
            _ => panic!("a request asks for devices"),
        };
        let count = usize::try_from(count.unwrap_or(1)).expect("a small number");
        std::iter::repeat_n((), count).map(move |()| Slot { claim, request: name.clone(), class })
    })
}

fn empty(node: &str) -> AllocationResult {
    let requirement = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![requirement]), ..NodeSelectorTerm::default() };
    AllocationResult {
        devices: Some(DeviceAllocationResult::default()),
        node_selector: Some(NodeSelector { node_selector_terms: vec![term] }),
        ..AllocationResult::default()
    }
}

/// Whether the device belongs to the class: the selectors of the classes, in Rust.
fn is_of_class(device: &Device, class: &str) -> bool {
    let attributes = device.attributes.as_ref();
    let kind = attributes.and_then(|all| all.get("type")?.string.as_deref());
    match class {
        "gpu" => kind == Some("gpu"),
        "half" => kind == Some("mig"),
        // No network cards exist here.
        _ => false,
    }
}

impl Search<'_> {
    /// Chooses devices for the next slot and all later ones.
    fn go_on(&mut self) -> bool {
        let Some(slot) = self.slots.get(self.chosen.len()) else { return true };
        // Slots of one request are alike: devices before the last choice were tried already.
        let before = self.chosen.len().checked_sub(1).map(|last| &self.slots[last]);
        let is_like_before =
            before.is_some_and(|before| (before.claim, &before.request) == (slot.claim, &slot.request));
        let first = self.chosen.last().filter(|_| is_like_before).map_or(0, |last| last + 1);
        for number in first..self.published.devices.len() {
            let (_, device) = self.published.devices[number];
            if !self.is_free[number] || !is_of_class(device, slot.class) || !self.has_counters(device) {
                continue;
            }
            self.change(number, -1);
            self.is_free[number] = false;
            self.chosen.push(number);
            if self.go_on() {
                return true;
            }
            self.chosen.pop();
            self.is_free[number] = true;
            self.change(number, 1);
        }
        false
    }

    fn has_counters(&self, device: &Device) -> bool {
        consumed(device).all(|(counter, amount)| self.left.get(&counter).is_some_and(|left| *left >= amount))
    }

    fn change(&mut self, number: usize, sign: i64) {
        for (counter, amount) in consumed(self.published.devices[number].1) {
            *self.left.entry(counter).or_default() += sign * amount;
        }
    }
}
