//! Placement against everything else that knows what claims may have: Kubernetes' own allocator, ours of its kind, and
//! trying all sets.

#![allow(clippy::expect_used)]

mod cases;
mod cost;
mod limits;

use serde_json::Value;
use tessera_allocator::selectors::SelectorCache;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_oracle::{Generator, Oracle, ours};

use cases::{assigned, changes_nodes, device_sets, hide_but, place, without_bugs};

/// Of the generated cases; `TESSERA_ORACLE_SEED` gives others.
fn seed(of_test: u64) -> u64 {
    let chosen = std::env::var("TESSERA_ORACLE_SEED").ok();
    of_test + 100 * chosen.map_or(0, |text| text.parse::<u64>().expect("a number"))
}

/// With one cost for everything, placement finds what upstream finds, or an assignment that the user prefers.
#[test]
fn something_is_found_exactly_when_upstream_finds_something() {
    let mut generator = Generator::new(seed(81));
    let mut selectors = SelectorCache::new();
    let (mut same, mut preferred, mut unfit, mut passed_over) = (0, 0, 0, 0);
    for id in 0..4_000 {
        let request = generator.request(id);
        let upstream = without_bugs(&request, &mut selectors);
        let placed = place(&request, &mut selectors, 20_000, |_| 0);
        let (error, allocations) = (&upstream["error"], &upstream["allocations"]);
        match placed {
            Ok(Some(placed)) if allocations.is_array() => {
                let again = place(&request, &mut SelectorCache::new(), 20_000, |_| 0);
                assert_eq!(again.expect("as before").as_ref(), Some(&placed), "{request}");
                let ours = ours::comparable(&placed.answer());
                if ours == ours::comparable(&upstream) {
                    same += 1;
                } else {
                    assert!(request["claims"].to_string().contains("firstAvailable"), "{request}\n{ours}");
                    preferred += 1;
                }
            }
            // What ends kube-scheduler's attempt may be passed over.
            Ok(Some(_)) => {
                assert!(error.is_string(), "{request}");
                passed_over += 1;
            }
            Ok(None) => {
                assert!(allocations.is_null(), "{request}\n{upstream}");
                unfit += 1;
            }
            Err(error) => assert!(allocations.is_null(), "{error}: {request}\n{upstream}"),
        }
    }
    println!("{same} the same, {preferred} preferred, {unfit} unfit, {passed_over} passed over");
    assert!(same > 500 && preferred > 0 && unfit > 1_000 && passed_over > 3, "{same} {preferred} {unfit}");
}

/// What is left of Kubernetes' choice if only the chosen devices are there: exactly them.
#[test]
fn the_chosen_devices_are_found_if_all_others_are_hidden() {
    let mut generator = Generator::new(seed(82));
    let mut selectors = SelectorCache::new();
    let (mut unpinned, mut pinned) = (0, 0);
    for id in 0..4_000 {
        let request = generator.request(id);
        let Ok(Some(placed)) = place(&request, &mut selectors, 5_000, cost::of(id)) else { continue };
        let hidden = hide_but(&request, &placed, false);
        let answer = without_bugs(&hidden, &mut selectors);
        // A chosen device's neighbour in the claim may be one for which a selector fails.
        if answer["error"].is_string() || changes_nodes(&request, &hidden) {
            continue;
        }
        if cases::is_determined(&request, &placed) {
            assert_eq!(
                device_sets(&answer["allocations"]),
                device_sets(&placed.allocations()),
                "{request}\n{answer}"
            );
            unpinned += 1;
        }
        // Which request has which of them is ours to choose, too.
        let answer = without_bugs(&hide_but(&request, &placed, true), &mut selectors);
        if answer["error"].is_string() {
            continue;
        }
        assert_eq!(assigned(&answer["allocations"]), assigned(&placed.allocations()), "{request}\n{answer}");
        pinned += 1;
    }
    println!("{unpinned} unpinned, {pinned} pinned");
    assert!(unpinned > 200 && pinned > 400, "{unpinned} {pinned}");
}

/// The same with Kubernetes' own code.
#[test]
fn kubernetes_finds_the_chosen_devices() {
    let mut generator = Generator::new(seed(83));
    let mut selectors = SelectorCache::new();
    let mut oracle = Oracle::start(KubernetesVersion::default());
    let (mut found, mut because_of_bugs) = (0, 0);
    for id in 0..1_500 {
        let request = generator.request(id);
        let Ok(Some(placed)) = place(&request, &mut selectors, 5_000, cost::of(id)) else { continue };
        let is_pinned = !cases::is_determined(&request, &placed);
        let hidden = hide_but(&request, &placed, is_pinned);
        let theirs: Value =
            serde_json::from_str(&oracle.ask(&hidden.to_string())).expect("the oracle answers in JSON");
        let is_found = if is_pinned {
            assigned(&theirs["allocations"]) == assigned(&placed.allocations())
        } else {
            device_sets(&theirs["allocations"]) == device_sets(&placed.allocations())
        };
        if is_found {
            found += 1;
            continue;
        }
        if theirs["error"].is_string() || changes_nodes(&request, &hidden) {
            continue;
        }
        // A bug of Kubernetes that we reproduce, and nothing else, may keep the devices from it.
        let with_bugs = ours::answer(&hidden, &mut selectors, None);
        let without = without_bugs(&hidden, &mut selectors);
        assert_eq!(ours::comparable(&with_bugs), ours::comparable(&theirs), "{hidden}");
        assert_ne!(ours::comparable(&with_bugs), ours::comparable(&without), "{hidden}");
        because_of_bugs += 1;
    }
    println!("{found} found, {because_of_bugs} not because of bugs");
    assert!(found > 200 && because_of_bugs < found / 10, "{found} {because_of_bugs}");
}

/// The first combination of alternatives that has any assignment is taken, and no set of devices costs less.
#[test]
fn trying_everything_finds_nothing_better() {
    let mut generator = Generator::new(seed(84));
    let mut selectors = SelectorCache::new();
    let (mut compared, mut lists, mut better_than_first) = (0, 0, 0);
    for id in 0..3_000 {
        let request = generator.request(id);
        let Ok(Some(placed)) = place(&request, &mut selectors, 100_000, cost::of(id)) else { continue };
        let combinations = cases::combinations(&request);
        let chosen = cases::chosen(&request, &placed);
        for combination in combinations.iter().take_while(|combination| **combination != chosen) {
            let narrowed = cases::narrowed(&request, combination);
            assert!(!without_bugs(&narrowed, &mut selectors)["allocations"].is_array(), "{request}");
            lists += 1;
        }
        let narrowed = cases::narrowed(&request, &chosen);
        let first = without_bugs(&narrowed, &mut selectors);
        if !first["allocations"].is_array() {
            continue;
        }
        let of_first = cost::of_answer(id, &first["allocations"]);
        assert!(placed.placed.cost <= of_first, "{request}");
        better_than_first += u32::from(placed.placed.cost < of_first);
        let Some(sets) = cases::sets_to_try(&narrowed, &placed) else { continue };
        if cases::has_faulty_pool(&request, &mut selectors) {
            continue;
        }
        assert!(placed.placed.is_best, "{request}");
        for set in sets {
            let hidden = cases::only(&narrowed, &set);
            if changes_nodes(&narrowed, &hidden) {
                continue;
            }
            let answer = without_bugs(&hidden, &mut selectors);
            if answer["allocations"].is_array() {
                let cost = cost::of_answer(id, &answer["allocations"]);
                assert!(placed.placed.cost <= cost, "{request}\n{answer}\n{:?}", placed.placed);
            }
        }
        compared += 1;
    }
    println!("{compared} compared, {lists} earlier combinations, {better_than_first} better than the first");
    assert!(
        compared > 150 && lists > 40 && better_than_first > 200,
        "{compared} {lists} {better_than_first}"
    );
}

/// Devices that may not be given are as if they were not there, and taints that are tolerated, too.
#[test]
fn what_is_withheld_or_tolerated_is_as_if_it_were_not_there() {
    let mut generator = Generator::new(seed(85));
    let mut selectors = SelectorCache::new();
    let (mut withheld, mut tolerated, mut none) = (0, 0, 0);
    for id in 0..2_500 {
        let request = generator.request(id);
        let cost = || cost::of(id);
        let plain = place(&request, &mut selectors, 20_000, cost());
        let places = |found: &Option<cases::Found>| {
            found.as_ref().map(|found| (found.placed.cost, assigned(&found.allocations())))
        };

        let without_taint = cases::with_devices(&request, |_, device| {
            if let Some(taints) = device.get_mut("taints").and_then(Value::as_array_mut) {
                taints.retain(|taint| taint["key"] != "broken");
            }
            true
        });
        let expected = place(&without_taint, &mut selectors, 20_000, cost());
        let found = cases::place_with(&request, &mut selectors, cost(), |placement| {
            placement.step_limit = 20_000;
            placement.tolerated = &["broken"];
        });
        if let (Ok(expected), Ok(found)) = (&expected, &found) {
            assert_eq!(places(found), places(expected), "{request}");
            tolerated += u32::from(plain.as_ref().is_ok_and(|plain| places(plain) != places(found)));
        }

        let may_give = |id: &str| !id.ends_with(['1', '4', '7']);
        let hidden = cases::with_devices(&request, |id, _| may_give(id));
        let text = request.to_string();
        // What is hidden takes no counters, and is none of all devices.
        if text.contains("\"All\"")
            || request["allocated"].as_array().is_some_and(|all| !all.is_empty())
            || changes_nodes(&request, &hidden)
            || cases::has_faulty_pool(&request, &mut selectors)
        {
            continue;
        }
        let expected = place(&hidden, &mut selectors, 20_000, cost());
        let found = cases::place_with(&request, &mut selectors, cost(), |placement| {
            placement.step_limit = 20_000;
            placement.may_give = &|device| !device.name().ends_with(['1', '4', '7']);
        });
        if let (Ok(expected), Ok(found)) = (&expected, &found) {
            let is_best =
                |found: &Option<cases::Found>| found.as_ref().is_none_or(|found| found.placed.is_best);
            if is_best(expected) && is_best(found) {
                assert_eq!(places(found), places(expected), "{request}");
                withheld += u32::from(plain.as_ref().is_ok_and(|plain| places(plain) != places(found)));
                none += u32::from(found.is_none());
            }
        }
    }
    println!("{tolerated} tolerated, {withheld} withheld, {none} none left");
    assert!(tolerated > 8 && withheld > 30 && none > 200, "{tolerated} {withheld} {none}");
}
