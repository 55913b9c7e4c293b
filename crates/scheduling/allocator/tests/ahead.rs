//! Costly selectors are answered a part at a time.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use tessera_allocator::selectors::SelectorCache;
use tessera_oracle::ours::Case;

/// All loops of so many steps each; some ten units a step of the innermost.
fn loops(steps: usize, result: &str) -> String {
    format!(
        "lists.range({steps}).all(a, lists.range({steps}).all(b, lists.range({steps}).all(c, a + b + c >= 0))) && {result}"
    )
}

fn case(devices: usize, class: &str, selectors: &[String]) -> Case {
    let cel = |expression: &str| json!({ "cel": { "expression": expression } });
    let device = |number: usize| json!({ "name": format!("d{number:03}"), "attributes": { "number": { "int": number } } });
    let devices: Vec<Value> = (0..devices).map(device).collect();
    let selectors: Vec<Value> = selectors.iter().map(|selector| cel(selector)).collect();
    let request = json!({
        "id": 1, "node": { "metadata": { "name": "node-a" } }, "allocated": [],
        "slices": [{ "metadata": { "name": "s" }, "spec": {
            "driver": "d", "nodeName": "node-a", "devices": devices,
            "pool": { "name": "node-a", "generation": 1, "resourceSliceCount": 1 } } }],
        "classes": [{ "metadata": { "name": "class" }, "spec": { "selectors": [cel(class)] } }],
        "claims": [{ "metadata": { "name": "c" }, "spec": { "devices": { "requests": [
            { "name": "r", "exactly": { "deviceClassName": "class", "selectors": selectors } }] } } }],
    });
    Case::read(&request).unwrap()
}

const OWN: &str = "device.driver == 'd'";

/// It reads the device, so that each device has an answer of its own.
fn costly() -> String {
    loops(30, "device.attributes['d'].number >= 0")
}

#[test]
fn each_part_gets_on_until_nothing_is_left() {
    let case = case(20, OWN, &[costly()]);
    let mut cache = SelectorCache::new();
    let mut parts = 0;
    let (mut done, mut spent) = (0, 0);
    loop {
        let mut budget = 1_000_000;
        let answered = cache.answer_ahead(&case.inventory, &case.classes, &case.claims, &mut budget);
        spent += 1_000_000 - budget;
        let Err(left) = answered else { break };
        assert!(left.done > done && left.devices == 20 && budget == 0, "{left:?} after {done}");
        assert!(left.cost > 100_000 && *left.expression == *costly(), "{left:?}");
        (done, parts) = (left.done, parts + 1);
    }
    assert!(parts >= 3, "{parts} parts");
    assert!(spent > 20 * 100_000, "{spent}");
    // All of it is known: nothing is left to pay.
    let mut none = 0;
    assert_eq!(cache.answer_ahead(&case.inventory, &case.classes, &case.claims, &mut none), Ok(()));
}

#[test]
fn without_a_budget_nothing_is_evaluated() {
    let case = case(2, OWN, &[costly()]);
    let mut cache = SelectorCache::new();
    let left = cache.answer_ahead(&case.inventory, &case.classes, &case.claims, &mut 0).unwrap_err();
    assert_eq!((left.done, left.cost), (0, 0));
}

#[test]
fn what_costs_little_is_not_worth_it() {
    let case = case(20, OWN, &["device.attributes['d'].number >= 0".to_owned()]);
    let answered = SelectorCache::new().answer_ahead(&case.inventory, &case.classes, &case.claims, &mut 0);
    assert_eq!(answered, Ok(()));
}

/// As an allocation would not evaluate it, either.
#[test]
fn what_the_class_rules_out_costs_nothing() {
    let case = case(20, "device.driver == 'other'", &[costly()]);
    let mut budget = 10_000;
    let answered =
        SelectorCache::new().answer_ahead(&case.inventory, &case.classes, &case.claims, &mut budget);
    assert_eq!(answered, Ok(()));
    assert!(budget > 9_000, "{budget}");
}
