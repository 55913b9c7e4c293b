//! What the caller may restrict, and how long it may take.

use serde_json::{Value, json};
use tessera_allocator::error::AllocateError;
use tessera_allocator::inventory::DeviceRef;
use tessera_allocator::placement::{Pick, Placed, Placement};
use tessera_allocator::selectors::SelectorCache;
use tessera_oracle::ours::{Case, share_ids};

use super::cases::results;

fn request(devices: &[Value], requests: &[Value], constraints: Value) -> Value {
    json!({
        "id": 1, "node": {"metadata": {"name": "node-a"}}, "allocated": [],
        "slices": [{"metadata": {"name": "s"}, "spec": {
            "driver": "gpu.example.com", "nodeName": "node-a", "devices": devices,
            "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
        }}],
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "claims": [{"metadata": {"name": "c"}, "spec": {"devices": {
            "requests": requests, "constraints": constraints,
        }}}],
    })
}

fn devices(count: usize) -> Vec<Value> {
    let device = |index: usize| json!({"name": format!("d{index:03}"), "attributes": {"group": {"string": format!("g{}", index % 4)}}});
    (0..count).map(device).collect()
}

fn exactly(name: &str, count: u32) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}})
}

fn all(name: &str) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "All"}})
}

/// Places with a changed planner; later devices cost less.
fn place(
    request: &Value,
    change: impl FnOnce(&mut Placement<'_>),
) -> Result<Option<Placed<i64>>, AllocateError> {
    let case = Case::read(request).expect("a good case");
    let mut placement = Placement::new(&case.inventory, &case.held, &case.classes);
    change(&mut placement);
    place_by(&placement, &case)
}

fn place_by(placement: &Placement<'_>, case: &Case) -> Result<Option<Placed<i64>>, AllocateError> {
    let cost = |picks: &[Pick<'_>]| {
        let number = |pick: &Pick<'_>| pick.device.name()[1..].parse::<i64>().expect("a number");
        -picks.iter().map(number).sum::<i64>()
    };
    placement.place(&case.node, &case.claims, &mut SelectorCache::new(), &mut share_ids(), cost)
}

fn names(placed: &Placed<i64>) -> Vec<String> {
    let results = results(&serde_json::to_value(&placed.allocations).expect("JSON"));
    let name = |device: String| device.rsplit('/').next().map(str::to_owned);
    results.into_iter().flatten().filter_map(|(_, device)| name(device)).collect()
}

#[test]
fn devices_that_may_not_be_given_are_left() {
    let request = request(&devices(6), &[exactly("r", 2)], json!([]));
    let placed = place(&request, |_| {}).expect("no error").expect("it fits");
    assert_eq!((names(&placed), placed.is_best), (vec!["d004".to_owned(), "d005".to_owned()], true));
    let placed = place(&request, |placement| {
        placement.may_give = &|device: DeviceRef<'_>| device.name().ends_with(['0', '2', '4']);
    })
    .expect("no error");
    assert_eq!(names(&placed.expect("it fits")), ["d002", "d004"]);
}

/// As a limit of what a team may have: it is kept to within one request and over all, and an alternative that would exceed it is passed
/// over for a later one.
#[test]
fn what_is_picked_together_can_be_limited() {
    let number = |pick: &Pick<'_>| pick.device.name()[1..].parse::<i64>().expect("a number");
    let limited = |requests: &[Value], most: i64| {
        let request = request(&devices(6), requests, json!([]));
        let case = Case::read(&request).expect("a good case");
        let may_take = |picks: &[Pick<'_>]| picks.iter().map(number).sum::<i64>() <= most;
        let mut placement = Placement::new(&case.inventory, &case.held, &case.classes);
        placement.may_take = Some(&may_take);
        place_by(&placement, &case).expect("no error").map(|placed| names(&placed))
    };
    let these = |devices: &[&str]| Some(devices.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(limited(&[exactly("r", 2)], 9), these(&["d004", "d005"]));
    assert_eq!(limited(&[exactly("r", 2)], 6), these(&["d001", "d005"]), "the best of those that may be had");
    assert_eq!(limited(&[exactly("r", 2)], 0), None);
    assert_eq!(limited(&[exactly("r", 1), exactly("s", 1)], 1), these(&["d000", "d001"]));
    assert_eq!(limited(&[all("r")], 15), these(&["d000", "d001", "d002", "d003", "d004", "d005"]));
    assert_eq!(limited(&[all("r")], 14), None);
    let alternative = |name: &str, count: u32| json!({"name": name, "deviceClassName": "any", "allocationMode": "ExactCount", "count": count});
    let several = json!({"name": "r", "firstAvailable": [alternative("three", 3), alternative("two", 2)]});
    assert_eq!(limited(std::slice::from_ref(&several), 3).map(|names| names.len()), Some(3));
    assert_eq!(limited(std::slice::from_ref(&several), 2).map(|names| names.len()), Some(2));
}

#[test]
fn all_devices_are_not_given_if_one_of_them_may_not() {
    let request = request(&devices(3), &[all("r")], json!([]));
    let placed = place(&request, |_| {}).expect("no error").expect("it fits");
    assert_eq!(names(&placed), ["d000", "d001", "d002"]);
    let placed = place(&request, |placement| placement.may_give = &|device| device.name() == "d000");
    assert_eq!(placed, Ok(None));
}

#[test]
fn only_the_named_taints_are_tolerated() {
    let mut devices = devices(3);
    devices[1]["taints"] = json!([{"key": "gpu.tessera.dev/managed", "effect": "NoSchedule"}]);
    devices[2]["taints"] = json!([
        {"key": "gpu.tessera.dev/managed", "effect": "NoSchedule"}, {"key": "broken", "effect": "NoExecute"},
    ]);
    let request = request(&devices, &[exactly("r", 1)], json!([]));
    assert_eq!(names(&place(&request, |_| {}).expect("no error").expect("it fits")), ["d000"]);
    let tolerant = place(&request, |placement| placement.tolerated = &["gpu.tessera.dev/managed"]);
    assert_eq!(names(&tolerant.expect("no error").expect("it fits")), ["d001"]);
}

/// Without the budget for the best, the greedy choice; without that for any choice, an error.
#[test]
fn steps_are_limited() {
    let request = request(&devices(128), &[exactly("r", 31), exactly("s", 1)], json!([]));
    let placed = place(&request, |placement| placement.step_limit = 10_000).expect("no error");
    let placed = placed.expect("it fits");
    assert_eq!(placed.cost, -(96..128).sum::<i64>(), "greedily all that costs least");
    assert!(!placed.is_best && placed.steps <= 10_000 + 128, "{}", placed.steps);
    let few = place(&request, |placement| placement.step_limit = 40).expect("no error");
    assert_eq!(few.expect("the first").cost, -(0..32).sum::<i64>());
    let none = place(&request, |placement| placement.step_limit = 3);
    assert!(matches!(none, Err(AllocateError::TooLong(_))), "{none:?}");
}

/// Eight requests for one device each are one set of eight.
#[test]
fn requests_that_are_alike_are_no_permutations() {
    let singles: Vec<Value> = (0..8).map(|index| exactly(&format!("r{index}"), 1)).collect();
    let request = request(&devices(12), &singles, json!([]));
    let placed = place(&request, |_| {}).expect("no error").expect("it fits");
    assert_eq!(placed.cost, -(4..12).sum::<i64>());
    assert!(placed.is_best && placed.steps < 20_000, "{} steps", placed.steps);
    assert_eq!(names(&placed)[0], "d004", "in published order");
}

/// What upstream's own tests call pathological: nothing fits, and there are very many ways to find that out.
#[test]
fn pathological_requests_end_soon() {
    let singles: Vec<Value> = (0..9).map(|index| exactly(&format!("r{index}"), 1)).collect();
    let (same, different) = (
        json!({"matchAttribute": "gpu.example.com/group"}),
        json!({"distinctAttribute": "gpu.example.com/group"}),
    );
    for (requests, constraints) in [
        (vec![exactly("r", 9)], json!([same])),
        (singles.clone(), json!([same])),
        (singles.clone(), json!([different])),
        (singles, json!([same, different])),
    ] {
        let placed = place(&request(&devices(32), &requests, constraints), |_| {});
        assert_eq!(placed, Ok(None));
    }
    let list = |name: &str| {
        let alternative = |place: usize| json!({"name": format!("s{place}"), "deviceClassName": "any", "allocationMode": "ExactCount", "count": 8 - place});
        json!({"name": name, "firstAvailable": (0..8).map(alternative).collect::<Vec<_>>()})
    };
    let lists: Vec<Value> = (0..16).map(|index| list(&format!("r{index}"))).collect();
    let placed =
        place(&request(&devices(20), &lists, json!([])), |_| {}).expect("no error").expect("it fits");
    assert_eq!(names(&placed).len(), 20, "the first list gets the most of what the others leave");
}

/// A selector that fails for one device is no reason not to give another.
#[test]
fn devices_for_which_a_selector_fails_are_passed_over() {
    let mut devices = devices(3);
    devices[1]["attributes"]["good"] = json!({"bool": true});
    let mut ask = exactly("r", 1);
    ask["exactly"]["selectors"] =
        json!([{"cel": {"expression": "device.attributes[\"gpu.example.com\"].good"}}]);
    let request = request(&devices, &[ask.clone()], json!([]));
    assert_eq!(names(&place(&request, |_| {}).expect("no error").expect("it fits")), ["d001"]);
    let none = super::limits::request(&devices[2..], &[ask], json!([]));
    let error = place(&none, |_| {}).expect_err("no device is good");
    assert!(error.to_string().contains("no such key: good"), "{error}");
}

/// Many devices with counters, and lists of alternatives of which the first ones nearly fit: an answer, in time.
#[test]
fn large_requests_on_large_nodes_end_soon() {
    let (mut all, mut sets) = (Vec::new(), Vec::new());
    for card in 0..48 {
        let name = format!("card-{card:02}");
        let slices = |from: usize, to: usize| -> serde_json::Map<String, Value> {
            (from..to).map(|slice| (format!("slice-{slice}"), json!({"value": "1"}))).collect()
        };
        sets.push(json!({"name": name, "counters": slices(0, 8)}));
        for (size, starts) in [(1, 0..7), (2, 0..6), (4, 0..5), (8, 0..1)] {
            for start in starts.step_by(size) {
                all.push(json!({
                    "name": format!("d{card:02}{size}{start}"),
                    "attributes": {"group": {"string": format!("g{}", card % 3)}},
                    "consumesCounters": [{"counterSet": name, "counters": slices(start, (start + size).min(8))}],
                }));
            }
        }
    }
    let list = |name: usize| {
        let alternative = |place: usize| json!({"name": format!("s{place}"), "deviceClassName": "any", "allocationMode": "ExactCount", "count": 5 - place});
        json!({"name": format!("r{name}"), "firstAvailable": (0..5).map(alternative).collect::<Vec<_>>()})
    };
    let lists: Vec<Value> = (0..8).map(list).collect();
    let constraint = json!([{"matchAttribute": "gpu.example.com/group"}]);
    let mut request = request(&all, &lists, constraint);
    let claim = request["claims"][0].clone();
    let pool = json!({"name": "node-a", "generation": 1, "resourceSliceCount": 2});
    request["slices"][0]["spec"]["pool"] = pool.clone();
    let counters = json!({"metadata": {"name": "counters"}, "spec": {
        "driver": "gpu.example.com", "nodeName": "node-a", "pool": pool, "sharedCounters": sets,
    }});
    request["slices"].as_array_mut().expect("a list").push(counters);
    // Six fit; whether twelve do is not known soon.
    for (claims, is_known) in [(6, true), (12, false)] {
        let named = |number: usize| {
            let mut claim = claim.clone();
            claim["metadata"]["name"] = json!(format!("c{number}"));
            claim
        };
        request["claims"] = (0..claims).map(named).collect();
        let begin = std::time::Instant::now();
        let placed = place(&request, |placement| placement.step_limit = 30_000);
        let took = begin.elapsed();
        match placed {
            Ok(Some(placed)) => {
                let preferred = names(&placed).len();
                assert_eq!(
                    preferred,
                    claims * 32,
                    "the user's preference, as far as a claim may have devices"
                );
                assert!(placed.steps < 40_000, "{} steps", placed.steps);
            }
            other => assert!(!is_known && matches!(other, Err(AllocateError::TooLong(_))), "{other:?}"),
        }
        assert!(took.as_secs() < 30, "took {took:?}");
    }
}
