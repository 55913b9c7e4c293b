//! Worth of a claim's devices as a part of their cards: alike on the page, in team sums, and in pools.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tessera_api::fleet_view::{CardView, FleetView, Holder};
use tessera_cluster::Object;

use crate::objects::*;

/// Memory slices of a card, as on an H100.
const SLICES: usize = 8;

/// Cards of the node.
const CARDS: usize = 3;

/// A published device: its memory slices and its capacity.
struct Published {
    suffix: &'static str,
    slices: std::ops::Range<usize>,
    capacity: Value,
}

/// Whole cards, sevenths and halves of cards, and shares of each.
fn published() -> Vec<Published> {
    let of = |suffix, slices: std::ops::Range<usize>, capacity| Published { suffix, slices, capacity };
    let memory = |gib: usize| json!({ "memory": { "value": format!("{gib}Gi") } });
    let shares = |gib: usize, compute: usize| json!({ "memory": { "value": format!("{gib}Gi") }, "compute": { "value": format!("{compute}") } });
    vec![
        of("", 0..8, memory(80)),
        of("-mps", 0..8, shares(80, 100)),
        of("-ts", 0..8, json!({ "slots": { "value": "7" } })),
        of("-mig-1g10gb-0", 0..1, memory(10)),
        of("-mig-1g10gb-0-mps", 0..1, shares(10, 100)),
        of("-mig-1g10gb-1", 1..2, memory(10)),
        of("-mig-1g10gb-1-mps", 1..2, shares(10, 100)),
        of("-mig-2g20gb-2", 2..4, memory(20)),
        of("-mig-2g20gb-2-mps", 2..4, shares(20, 100)),
        of("-mig-3g40gb-4", 4..8, memory(40)),
        of("-mig-3g40gb-4-mps", 4..8, shares(40, 100)),
    ]
}

/// A node with [`CARDS`] cards, each offered as all of these.
fn slices_of_all() -> Vec<Object> {
    let counters = |slices: std::ops::Range<usize>| -> Map<String, Value> {
        slices.map(|slice| (format!("memory-slice-{slice}"), json!({ "value": "1" }))).collect()
    };
    let sets: Vec<Value> = (0..CARDS)
        .map(|number| json!({ "name": format!("{}-set", card(number)), "counters": counters(0..SLICES) }))
        .collect();
    let mut devices = Vec::new();
    for number in 0..CARDS {
        for published in published() {
            let is_shared = published.suffix.ends_with("-mps") || published.suffix == "-ts";
            devices.push(json!({
                "name": format!("{}{}", card(number), published.suffix),
                "allowMultipleAllocations": is_shared,
                "capacity": published.capacity,
                "consumesCounters": [{ "counterSet": format!("{}-set", card(number)), "counters": counters(published.slices) }],
            }));
        }
    }
    let report = |number: usize| (format!("0000:{:02x}:00.0", number + 1), steered());
    let report =
        json!({ "cards": (0..CARDS).map(report).collect::<Map<String, Value>>(), "otherPairs": "SYS" });
    let slice = |name: &str, annotations: Value, contents: Value| {
        let mut spec = json!({ "driver": DRIVER, "nodeName": "a",
            "pool": { "name": format!("{DRIVER}/a"), "generation": 1, "resourceSliceCount": 2 } });
        spec.as_object_mut().unwrap().extend(contents.as_object().unwrap().clone());
        let slice = json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec });
        read::<k8s_openapi::api::resource::v1::ResourceSlice>(slice).into()
    };
    let annotations = json!({ "gpu.tessera.dev/node-report": report.to_string() });
    vec![
        slice("a-0", annotations, json!({ "sharedCounters": sets })),
        slice("a-1", json!({}), json!({ "devices": devices })),
    ]
}

fn node_with_all() -> Fed {
    let mut fed = Fed::with_nodes(&[]);
    fed.apply(node("a"));
    slices_of_all().into_iter().for_each(|slice| fed.apply(slice));
    fed
}

/// A claim holding these devices. The value is the consumed capacity of a shared device.
fn hold(fed: &mut Fed, name: &str, parts: &[(String, Option<Value>)]) {
    let devices: Vec<String> = parts.iter().map(|(device, _)| device.clone()).collect();
    let mut claim = allocated(claim(name, "gpu", devices.len()), "a", &devices);
    for (number, (_, consumed)) in parts.iter().enumerate() {
        let result = &mut claim["status"]["allocation"]["devices"]["results"][number];
        if let Some(consumed) = consumed {
            result["consumedCapacity"] = consumed.clone();
            result["shareID"] = json!(format!("00000000-0000-4000-8000-{number:012x}"));
        }
    }
    fed.apply_claim(claim);
}

fn view(fed: &mut Fed) -> FleetView {
    let mut pass = tessera_decide::ViewPass::default();
    while fed.decider.view_next(&mut pass) {}
    fed.decider.view(pass, fed.now).into_view()
}

fn cards(view: &FleetView) -> Vec<&CardView> {
    view.nodes.iter().flat_map(|node| node.cards.values()).collect()
}

fn together(holders: &[Holder]) -> u32 {
    holders.iter().map(|holder| holder.allocated).sum()
}

#[test]
fn a_share_of_a_partition_counts_as_its_part_of_the_partition() {
    let mut fed = node_with_all();
    let half = || Some(json!({ "memory": "5Gi", "compute": "50" }));
    let share = format!("{}-mig-1g10gb-0-mps", card(0));
    hold(&mut fed, "one", &[(share.clone(), half())]);
    let view_of_one = view(&mut fed);
    let first = cards(&view_of_one)[0];
    assert_eq!((first.allocated, first.holders[0].allocated), (62, 62), "half of an eighth");
    assert_eq!(fed.decider.pools()["main"].allocated, 62);
    hold(&mut fed, "two", &[(share, half())]);
    let view_of_two = view(&mut fed);
    let first = cards(&view_of_two)[0];
    assert_eq!((first.allocated, together(&first.holders)), (125, 125));
    assert_eq!(fed.decider.pools()["main"].allocated, 125);
    assert_eq!(fed.decider.pools()["main"].unallocatable, 0, "its other partitions are free");
}

#[test]
fn sevenths_of_a_card_are_the_card() {
    let mut fed = node_with_all();
    for number in 0..7 {
        hold(&mut fed, &format!("c{number}"), &[(format!("{}-ts", card(0)), Some(json!({ "slots": "1" })))]);
    }
    let view = view(&mut fed);
    let first = cards(&view)[0];
    assert_eq!((first.allocated, together(&first.holders)), (1000, 1000));
    assert!(first.holders.iter().all(|holder| (142..=143).contains(&holder.allocated)), "{first:?}");
}

/// Fills a card in a way allowed by the counters, with claims taking any part of its shared devices.
fn fill(fed: &mut Fed, random: &mut fastrand::Rng, number: usize) {
    let published = published();
    let mut free = [true; SLICES];
    let mut order: Vec<usize> = (0..published.len()).collect();
    random.shuffle(&mut order);
    for index in order {
        let published = &published[index];
        if published.slices.clone().any(|slice| !free[slice]) || random.u8(0..4) == 0 {
            continue;
        }
        published.slices.clone().for_each(|slice| free[slice] = false);
        let device = format!("{}{}", card(number), published.suffix);
        if !published.suffix.ends_with("-mps") && published.suffix != "-ts" {
            hold(fed, &format!("c{number}-{index}"), &[(device, None)]);
            continue;
        }
        let capacities: Vec<(&String, u64)> = published
            .capacity
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| {
                let text = value["value"].as_str().unwrap();
                let value = text
                    .strip_suffix("Gi")
                    .map_or_else(|| text.parse(), |gib| gib.parse().map(|gib: u64| gib << 30));
                (name, value.unwrap())
            })
            .collect();
        let mut left: BTreeMap<&String, u64> = capacities.iter().copied().collect();
        for share in 0..random.usize(1..12) {
            let mut consumed = Map::new();
            for (name, all) in &capacities {
                let most = left[name].min(1 + all / random.u64(1..9));
                let taken = if *name == "slots" { most.min(1) } else { random.u64(0..=most) };
                *left.get_mut(name).unwrap() -= taken;
                consumed.insert((*name).clone(), json!(taken.to_string()));
            }
            let part = (device.clone(), Some(Value::Object(consumed)));
            hold(fed, &format!("c{number}-{index}-{share}"), &[part]);
        }
    }
}

/// The basis of team charges: whatever is given out, a card's claims are worth its allocated part and never more than the card. A
/// pool's sum is the sum of its cards.
#[test]
fn what_the_claims_of_a_card_are_worth_is_never_more_than_the_card() {
    let mut mixed = 0;
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut fed = node_with_all();
        for number in 0..CARDS {
            fill(&mut fed, &mut random, number);
        }
        let view = view(&mut fed);
        for card in cards(&view) {
            assert!(card.allocated <= 1000, "seed {seed}: {card:?}");
            assert_eq!(together(&card.holders), card.allocated, "seed {seed}: {card:?}");
            mixed += usize::from(card.holders.len() > 3);
        }
        let sum: u64 = cards(&view).iter().map(|card| u64::from(card.allocated)).sum();
        assert_eq!(fed.decider.pools()["main"].allocated, sum, "seed {seed}");
    }
    assert!(mixed > 100, "cards of which many have something: {mixed}");
}

#[test]
fn devices_that_were_given_out_twice_are_worth_no_more_than_the_card() {
    let mut fed = node_with_all();
    hold(&mut fed, "whole", &[(card(0), None)]);
    hold(&mut fed, "again", &[(card(0), None)]);
    hold(&mut fed, "half", &[(format!("{}-mig-3g40gb-4", card(0)), None)]);
    let view = view(&mut fed);
    let first = cards(&view)[0];
    assert_eq!((first.allocated, together(&first.holders), first.holders.len()), (1000, 1000, 3));
}
