//! Cases of the generator, and what is changed in them to ask for exactly what was chosen.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tessera_allocator::error::AllocateError;
use tessera_allocator::features::UpstreamBugs;
use tessera_allocator::placement::{Pick, Placed, Placement};
use tessera_allocator::selectors::SelectorCache;
use tessera_oracle::ours::{self, Case, share_ids};

/// What placement found.
#[derive(Debug, PartialEq)]
pub struct Found {
    pub placed: Placed<u64>,
}

impl Found {
    pub fn allocations(&self) -> Value {
        serde_json::to_value(&self.placed.allocations).expect("allocations are JSON")
    }

    pub fn answer(&self) -> Value {
        json!({ "allocations": self.allocations() })
    }
}

/// What placement finds.
pub fn place(
    request: &Value,
    selectors: &mut SelectorCache,
    step_limit: u64,
    cost: impl FnMut(&[Pick<'_>]) -> u64,
) -> Result<Option<Found>, AllocateError> {
    place_with(request, selectors, cost, |placement| placement.step_limit = step_limit)
}

/// What placement finds with a changed planner.
pub fn place_with(
    request: &Value,
    selectors: &mut SelectorCache,
    cost: impl FnMut(&[Pick<'_>]) -> u64,
    change: impl FnOnce(&mut Placement<'_>),
) -> Result<Option<Found>, AllocateError> {
    let case = Case::read(request).expect("a good case");
    let mut placement = Placement::new(&case.inventory, &case.held, &case.classes);
    placement.features = case.features;
    change(&mut placement);
    let placed = placement.place(&case.node, &case.claims, selectors, &mut share_ids(), cost)?;
    Ok(placed.map(|placed| Found { placed }))
}

/// The request with devices changed, or taken away where `change` is false for them; it gets driver/pool/name, too.
pub fn with_devices(request: &Value, mut change: impl FnMut(&str, &mut Value) -> bool) -> Value {
    let mut request = request.clone();
    for slice in request["slices"].as_array_mut().into_iter().flatten() {
        let pool = format!("{}/{}", text(&slice["spec"]["driver"]), text(&slice["spec"]["pool"]["name"]));
        if let Some(all) = slice["spec"]["devices"].as_array_mut() {
            all.retain_mut(|device| {
                let id = format!("{pool}/{}", text(&device["name"]));
                change(&id, device)
            });
        }
    }
    request
}

/// What upstream would find without its bugs.
pub fn without_bugs(request: &Value, selectors: &mut SelectorCache) -> Value {
    ours::answer_with(request, selectors, |allocator| {
        allocator.bugs = UpstreamBugs::NONE;
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// By claim: request and device of each result.
pub fn results(allocations: &Value) -> Vec<Vec<(String, String)>> {
    let of_claim = |allocation: &Value| {
        let results = allocation["devices"]["results"].as_array().cloned().unwrap_or_default();
        let of = |result: &Value| {
            let device = ["driver", "pool", "device"].map(|field| text(&result[field]).to_owned()).join("/");
            (text(&result["request"]).to_owned(), device)
        };
        results.iter().map(of).collect()
    };
    allocations.as_array().into_iter().flatten().map(of_claim).collect()
}

/// The same sorted: hiding devices may change the order of pools.
pub fn assigned(allocations: &Value) -> Vec<Vec<(String, String)>> {
    let mut all = results(allocations);
    all.iter_mut().for_each(|claim| claim.sort());
    all
}

/// By claim: its devices.
pub fn device_sets(allocations: &Value) -> Vec<BTreeSet<String>> {
    let of = |claim: Vec<(String, String)>| claim.into_iter().map(|(_, device)| device).collect();
    results(allocations).into_iter().map(of).collect()
}

/// Requests with their alternatives.
fn requests(request: &mut Value) -> impl Iterator<Item = &mut Value> {
    let claims = request["claims"].as_array_mut().into_iter().flatten();
    claims.flat_map(|claim| claim["spec"]["devices"]["requests"].as_array_mut().expect("a list").iter_mut())
}

/// All combinations of alternatives, the preferred first: for each request with a list the place in it.
pub fn combinations(request: &Value) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for of in requests(&mut request.clone()) {
        let Some(alternatives) = of["firstAvailable"].as_array() else { continue };
        let longer = |one: Vec<usize>| {
            (0..alternatives.len()).map(move |alternative| [one.clone(), vec![alternative]].concat())
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

/// The combination that was chosen.
pub fn chosen(request: &Value, found: &Found) -> Vec<usize> {
    let of_claims = results(&found.allocations());
    let mut chosen = Vec::new();
    for (claim, results) in request["claims"].as_array().into_iter().flatten().zip(of_claims) {
        for of in claim["spec"]["devices"]["requests"].as_array().into_iter().flatten() {
            let Some(alternatives) = of["firstAvailable"].as_array() else { continue };
            let name = |alternative: &Value| format!("{}/{}", text(&of["name"]), text(&alternative["name"]));
            let place = alternatives
                .iter()
                .position(|alternative| results.iter().any(|(request, _)| *request == name(alternative)));
            // One that asks for no device has no result.
            chosen.push(place.unwrap_or_else(|| {
                alternatives.iter().position(|other| other["count"] == json!(0)).unwrap_or(0)
            }));
        }
    }
    chosen
}

/// The request with one alternative of each list.
pub fn narrowed(request: &Value, combination: &[usize]) -> Value {
    let mut request = request.clone();
    let mut combination = combination.iter();
    for of in requests(&mut request) {
        if let Some(alternatives) = of.get_mut("firstAvailable").and_then(Value::as_array_mut) {
            let alternative = alternatives.swap_remove(*combination.next().expect("one for each list"));
            *alternatives = vec![alternative];
        }
    }
    request
}

/// Devices that claims hold, and that are not free for others besides.
fn held(request: &Value) -> BTreeSet<String> {
    let claims = request["allocated"].as_array().cloned().unwrap_or_default();
    let mut allocations: Vec<Value> =
        claims.into_iter().map(|claim| claim["status"]["allocation"].clone()).collect();
    for allocation in &mut allocations {
        let results = allocation["devices"]["results"].as_array_mut().expect("a list");
        results.retain(|result| result["adminAccess"] != json!(true) && result["shareID"].is_null());
    }
    device_sets(&json!(allocations)).into_iter().flatten().collect()
}

/// The request with those devices only, besides those that are held.
pub fn only(request: &Value, devices: &BTreeSet<String>) -> Value {
    let held = held(request);
    with_devices(request, |id, _| devices.contains(id) || held.contains(id))
}

/// The request with its chosen alternatives, and all free devices hidden but those that were chosen; pinned, each
/// request selects its own of them.
pub fn hide_but(request: &Value, found: &Found, is_pinned: bool) -> Value {
    let of_claims = results(&found.allocations());
    let devices: BTreeSet<String> = of_claims.iter().flatten().map(|(_, device)| device.clone()).collect();
    let mut hidden = only(&narrowed(request, &chosen(request, found)), &devices);
    if !is_pinned {
        return hidden;
    }
    for (claim, of_claim) in hidden["claims"].as_array_mut().into_iter().flatten().zip(0..) {
        let requests = claim["spec"]["devices"]["requests"].as_array_mut().expect("a list");
        for (request, number) in requests.iter_mut().zip(0..) {
            let ask = match request.get_mut("firstAvailable") {
                Some(alternatives) => &mut alternatives[0],
                None => &mut request["exactly"],
            };
            if ask["selectors"].is_null() {
                ask["selectors"] = json!([]);
            }
            let expression =
                format!(r#"device.attributes["pin.example.com"].?c{of_claim}r{number}.orValue(false)"#);
            let selectors = ask["selectors"].as_array_mut().expect("a list");
            selectors.push(json!({"cel": {"expression": expression}}));
        }
    }
    let names: Vec<Vec<String>> = hidden["claims"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|claim| {
            let requests = claim["spec"]["devices"]["requests"].as_array().into_iter().flatten();
            requests.map(|request| text(&request["name"]).to_owned()).collect()
        })
        .collect();
    for slice in hidden["slices"].as_array_mut().into_iter().flatten() {
        let pool = format!("{}/{}", text(&slice["spec"]["driver"]), text(&slice["spec"]["pool"]["name"]));
        for device in slice["spec"]["devices"].as_array_mut().into_iter().flatten() {
            let id = format!("{pool}/{}", text(&device["name"]));
            for (claim, of_claim) in of_claims.iter().enumerate() {
                for (of, device_id) in of_claim.iter().filter(|(_, device)| *device == id) {
                    let of = of.split('/').next().unwrap_or(of);
                    let number = names[claim].iter().position(|name| name == of).expect("a known request");
                    assert_eq!(*device_id, id);
                    device["attributes"][format!("pin.example.com/c{claim}r{number}")] =
                        json!({"bool": true});
                }
            }
        }
    }
    hidden
}

/// Whether hiding left fewer devices in a slice whose devices say which nodes they are for: without any for this node it
/// no longer counts, so the pool may look as if slices were missing, or an older generation as if it were in force. Or
/// whether a slice lost the devices that make it one to ignore, or one of a pool that is tried last.
pub fn changes_nodes(request: &Value, hidden: &Value) -> bool {
    let devices = |slice: &Value| slice["spec"]["devices"].as_array().map_or(0, Vec::len);
    let slices = |of: &Value| of["slices"].as_array().cloned().unwrap_or_default();
    slices(request).iter().zip(&slices(hidden)).any(|(before, after)| {
        let lost = |what: &str| before.to_string().contains(what) && !after.to_string().contains(what);
        (before["spec"]["perDeviceNodeSelection"] == json!(true) && devices(after) < devices(before))
            || lost("compatibilityGroups")
            || lost("bindingConditions")
    })
}

/// Whether the chosen devices can be given in one way only, as far as sets for each claim go: no other claim could
/// exchange with it, and no device can be had twice or besides its holder.
pub fn is_determined(request: &Value, found: &Found) -> bool {
    let is_once = |sets: Vec<BTreeSet<String>>, results: Vec<Vec<(String, String)>>| {
        sets.iter().map(BTreeSet::len).eq(results.iter().map(Vec::len))
    };
    let allocations = found.allocations();
    request["claims"].as_array().is_some_and(|claims| claims.len() == 1)
        && !request["claims"].to_string().contains("adminAccess")
        && !allocations.to_string().contains("shareID")
        && is_once(device_sets(&allocations), results(&allocations))
}

/// Whether a pool is faulty. Hiding some of its devices may mend it.
pub fn has_faulty_pool(request: &Value, selectors: &mut SelectorCache) -> bool {
    let mut nothing = request.clone();
    let ask = json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1, "selectors": [
        {"cel": {"expression": "false"}},
    ]});
    nothing["claims"] = json!([
        {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": ask}]}}},
    ]);
    without_bugs(&nothing, selectors)["error"].is_string()
}

/// Sets of devices to try one by one, where they are few enough: of the size that was found.
pub fn sets_to_try(request: &Value, found: &Found) -> Option<Vec<BTreeSet<String>>> {
    // A shared device that is hidden no longer takes counters from others.
    let is_shared = request["allocated"].to_string().contains("shareID");
    if is_shared || !is_determined(request, found) || request["claims"].to_string().contains("\"All\"") {
        return None;
    }
    let mut free = BTreeSet::new();
    for slice in request["slices"].as_array()? {
        let pool = format!("{}/{}", text(&slice["spec"]["driver"]), text(&slice["spec"]["pool"]["name"]));
        for device in slice["spec"]["devices"].as_array().into_iter().flatten() {
            free.insert(format!("{pool}/{}", text(&device["name"])));
        }
    }
    let free: Vec<String> = free.difference(&held(request)).cloned().collect();
    let size = device_sets(&found.allocations())[0].len();
    if free.len() > 12 || size > 3 {
        return None;
    }
    let mut sets: Vec<BTreeSet<String>> = vec![BTreeSet::new()];
    for device in &free {
        let with: Vec<BTreeSet<String>> = sets
            .iter()
            .filter(|set| set.len() < size)
            .map(|set| set.iter().chain([device]).cloned().collect())
            .collect();
        sets.extend(with);
    }
    sets.retain(|set| set.len() == size);
    Some(sets)
}
