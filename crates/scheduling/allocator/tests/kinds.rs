//! Slices of one kind share the answers of selectors: as if each device were asked.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests fail by panicking")]

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};
use tessera_allocator::claim::{Claim, Class, Classes};
use tessera_allocator::held::Held;
use tessera_allocator::inventory::{Inventory, SliceKind};
use tessera_allocator::node::Node;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::Allocator;

const DRIVER: &str = "gpu.tessera.dev";

/// A slice of a node with two cards; `more` are attributes of the second.
fn slice(node: &str, more: &Value) -> ResourceSlice {
    let card = |number: usize| {
        let mut attributes =
            json!({ "uuid": { "string": format!("{node}-{number}") }, "index": { "int": number } });
        if number == 1 {
            attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        json!({ "name": format!("gpu-{number}"), "attributes": attributes })
    };
    let slice = json!({ "metadata": { "name": node }, "spec": { "driver": DRIVER, "nodeName": node,
        "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 }, "devices": [card(0), card(1)] } });
    serde_json::from_value(slice).unwrap()
}

fn inventory(slices: &[ResourceSlice]) -> Inventory {
    let mut inventory = Inventory::new();
    for slice in slices {
        inventory.add(slice).unwrap();
    }
    inventory
}

/// The device that a claim with this selector gets on each node, or the error.
fn allocated(
    inventory: &Inventory,
    nodes: &[&str],
    selector: &str,
    cache: &mut SelectorCache,
) -> Vec<String> {
    let class = json!({ "metadata": { "name": "gpu" }, "spec": {} });
    let class: DeviceClass = serde_json::from_value(class).unwrap();
    let classes: Classes = [Class::from(&class)].into_iter().collect();
    let claim = json!({ "metadata": { "name": "c", "namespace": "n" }, "spec": { "devices": { "requests": [
        { "name": "r", "exactly": { "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
            "selectors": [{ "cel": { "expression": selector } }] } }] } } });
    let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
    let claims = [Claim::try_from(&claim).unwrap()];
    let held = Held::new();
    let on = |node: &&str| {
        let allocator = Allocator::new(inventory, &held, &classes);
        let node = Node { name: (*node).to_owned(), ..Node::default() };
        match allocator.allocate(&node, &claims, cache, &mut String::new) {
            Ok(Some(allocations)) => {
                let results = allocations[0].devices.as_ref().unwrap().results.as_ref().unwrap();
                results[0].device.clone()
            }
            Ok(None) => "none".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    nodes.iter().map(on).collect()
}

fn kind(inventory: &Inventory, node: &str) -> SliceKind {
    inventory.kinds_of_node(node).next().unwrap()
}

#[test]
fn slices_alike_but_for_what_identifies_cards_are_of_one_kind() {
    let more = json!({ "nvlinkCount": { "int": 18 } });
    let all = inventory(&[slice("a", &json!({})), slice("b", &json!({})), slice("c", &more)]);
    assert_eq!(kind(&all, "a"), kind(&all, "b"));
    assert_ne!(kind(&all, "a"), kind(&all, "c"));
}

#[test]
fn a_changed_slice_is_of_another_kind() {
    let mut all = inventory(&[slice("a", &json!({})), slice("b", &json!({}))]);
    all.update(&slice("b", &json!({ "nvlinkCount": { "int": 18 } }))).unwrap();
    let selector = format!("'nvlinkCount' in device.attributes['{DRIVER}']");
    let mut cache = SelectorCache::new();
    assert_eq!(allocated(&all, &["a", "b"], &selector, &mut cache), ["none", "gpu-1"]);
    all.update(&slice("a", &json!({ "nvlinkCount": { "int": 18 } }))).unwrap();
    all.update(&slice("b", &json!({}))).unwrap();
    assert_eq!(allocated(&all, &["a", "b"], &selector, &mut cache), ["gpu-1", "none"]);
    assert_ne!(kind(&all, "a"), kind(&all, "b"));
}

#[test]
fn a_selector_that_reads_what_identifies_a_card_is_asked_on_each_node() {
    let all = inventory(&[slice("a", &json!({})), slice("b", &json!({}))]);
    let attributes = format!("device.attributes['{DRIVER}']");
    for selector in [
        format!("{attributes}.uuid == 'b-1'"),
        format!("{attributes}['uu' + 'id'].matches('b-1')"),
        format!("{attributes}.exists(name, name == 'uuid') && {attributes}['uuid'] == 'b-1'"),
        "device.attributes.exists(domain, device.attributes[domain].uuid == 'b-1')".to_owned(),
    ] {
        let mut cache = SelectorCache::new();
        assert_eq!(allocated(&all, &["a", "b"], &selector, &mut cache), ["none", "gpu-1"], "{selector}");
    }
}

#[test]
fn a_device_without_answer_is_met_only_where_it_is_tried() {
    let all = inventory(&[slice("a", &json!({})), slice("b", &json!({}))]);
    let mut cache = SelectorCache::new();
    // There is no answer for the second card, which a search for the first one does not come to.
    let attributes = format!("device.attributes['{DRIVER}']");
    let selector = format!("{attributes}.index == 0 || {attributes}.missing == 1");
    assert_eq!(allocated(&all, &["a", "b"], &selector, &mut cache), ["gpu-0", "gpu-0"]);
    let selector = format!("{attributes}.index == 1 && {attributes}.missing == 1");
    let errors = allocated(&all, &["a", "b"], &selector, &mut cache);
    assert!(errors.iter().all(|error| error.contains("no such key: missing")), "{errors:?}");
}

/// kube-scheduler fails on the device, whatever its selectors read.
#[test]
fn a_device_with_a_faulty_uuid_is_of_another_kind() {
    let all = inventory(&[slice("a", &json!({})), slice("b", &json!({ "uuid": { "version": "nonsense" } }))]);
    assert_ne!(kind(&all, "a"), kind(&all, "b"));
    let selector = format!("device.attributes['{DRIVER}'].index == 1");
    let found = allocated(&all, &["a", "b"], &selector, &mut SelectorCache::new());
    assert_eq!(found[0], "gpu-1");
    assert!(found[1].contains("uuid"), "{found:?}");
}
