//! Strangers partition a card, and the results are compared with the tables.
//!
//! The expected results are computed here from the machine's profiles, without the emulator's code.

use serde_json::{Map, Value, json};

use super::{EmulatedMachine, StrangersError, expected};

/// Number of queried NVML profile ids.
const PROFILES: u64 = 18;

/// Lets a stranger partition the first card of a machine, if supported: `ask` runs the stranger with steps.
///
/// # Errors
/// See [`StrangersError`].
pub fn check(
    stranger: &'static str,
    machine: &EmulatedMachine,
    ask: impl Fn(&Value) -> Result<Value, StrangersError>,
) -> Result<(), StrangersError> {
    let card = machine.facts()?["machine"]["cards"][0].clone();
    if card["mig"].is_null() {
        return Ok(());
    }
    let compare = |steps: Vec<(Value, Value)>| -> Result<(), StrangersError> {
        let (steps, expected): (Vec<Value>, Vec<Value>) = steps.into_iter().unzip();
        let mut found = ask(&json!(steps))?;
        uuids_are_uuids(&mut found);
        let differences = expected::differences(&json!(expected), &found);
        if differences.is_empty() {
            return Ok(());
        }
        Err(StrangersError::Different { stranger, hardware: machine.hardware().to_owned(), differences })
    };
    let waits = card["mig"]["modeNeedsReset"] == true;
    let (status, current) = if waits { ("error: GPU requires reset", 0) } else { ("ok", 1) };
    compare(vec![
        (json!({ "do": "offers" }), offers(&card)),
        (json!({ "do": "mode", "on": 1 }), json!(["ok", status, current, 1])),
    ])?;
    if waits {
        machine.tell(&["reset"], &["--card", "0"])?;
    }
    compare(story(&card))?;
    // Restore the machine for the next reader.
    let off = if waits { json!(["ok", status, 1, 0]) } else { json!(["ok", "ok", 0, 0]) };
    compare(vec![(json!({ "do": "mode", "on": 0 }), off)])?;
    Ok(machine.tell(&["reset"], &["--card", "0"])?)
}

/// Replaces UUIDs of MIG devices by the expected text, since they are random.
fn uuids_are_uuids(found: &mut Value) {
    match found {
        Value::Array(values) => values.iter_mut().for_each(uuids_are_uuids),
        Value::Object(fields) => {
            for (name, value) in fields {
                let text = value.as_str().unwrap_or_default();
                if name == "uuid" && text.starts_with("MIG-") && text.len() == 40 {
                    *value = json!("a UUID");
                }
                uuids_are_uuids(value);
            }
        }
        _ => {}
    }
}

fn profiles(card: &Value) -> Vec<Value> {
    card["mig"]["profiles"].as_array().cloned().unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn starts(profile: &Value) -> Vec<u64> {
    profile["starts"].as_array().map(|starts| starts.iter().map(number).collect()).unwrap_or_default()
}

fn offers(card: &Value) -> Value {
    let profiles = profiles(card);
    let describe = |enumerator: u64| {
        let Some(profile) = profiles.iter().find(|profile| profile["enumerator"] == enumerator) else {
            return Value::Null;
        };
        let size = &profile["memorySlices"];
        let engines = ["copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines"];
        json!({
            "id": profile["id"],
            "slices": profile["computeSlices"],
            "instances": profile["maxInstances"],
            // NVML has no value for "unknown".
            "multiprocessors": number(&profile["multiprocessors"]),
            "memoryMiB": profile["memoryMiB"],
            "engines": engines.map(|kind| number(&profile[kind])),
            "name": format!("MIG {}", profile["name"].as_str().unwrap_or_default()),
            "placements": starts(profile).iter().map(|start| json!([start, size])).collect::<Vec<_>>(),
            "same": true,
        })
    };
    (0..PROFILES).map(describe).collect()
}

/// Half of the card in one instance, its upper half, and the smallest instance at the very beginning; then both
/// destroyed.
fn story(card: &Value) -> Vec<(Value, Value)> {
    let all = profiles(card);
    let slices = number(&card["mig"]["memorySlices"]);
    let plain = |profile: &&Value| {
        let name = profile["name"].as_str().unwrap_or_default();
        !name.contains('+') && !name.contains("-me")
    };
    let half_of =
        |profile: &&Value| number(&profile["memorySlices"]) * 2 == slices && starts(profile).len() == 2;
    let nothing = Value::Null;
    let half = all.iter().filter(plain).find(half_of).unwrap_or(&nothing);
    let small = all.iter().filter(plain).find(|profile| profile["enumerator"] == 0).unwrap_or(&nothing);
    let upper = slices / 2;
    // Ids count the places of a size: halves are 1 and 2; then come the smaller ones.
    let (half_id, small_id) = (2, slices / number(&small["memorySlices"]).max(1) - 1);
    // NVML_COMPUTE_INSTANCE_PROFILE_*: one slice is 0, two are 1, three are 2.
    let width = number(&half["computeSlices"]);
    let full = width - 1;
    let instance = |profile: &Value, start: u64, compute: Value| json!({ "profile": profile["id"], "start": start, "size": profile["memorySlices"], "compute": compute });
    let both = json!({
        half_id.to_string(): instance(half, upper, json!([[0, full, 0, width]])),
        small_id.to_string(): instance(small, 0, json!([[0, 0, 0, 1]])),
    });
    let left = json!({ half_id.to_string(): instance(half, upper, json!([])) });
    let none: Value = json!({});
    let device = |index: u64, id: u64, profile: &Value| device(card, index, id, profile);
    let create =
        |profile: &Value, start: u64| json!({ "do": "create", "profile": profile["id"], "start": start });
    let list = |instances: &Value, devices: Vec<Value>| {
        let capacity = capacity(card, instances);
        json!({ "instances": instances, "capacity": capacity, "most": card["mig"]["computeSlices"], "devices": devices })
    };
    let whole = json!({ "id": 0 });
    let say = |text: &str| json!(text);
    vec![
        (json!({ "do": "list" }), list(&none, vec![])),
        (create(half, upper), say("ok")),
        (create(half, upper), say("error: Insufficient Resources")),
        (create(&whole, 0), say("error: Insufficient Resources")),
        (create(small, slices - 1 + number(&small["memorySlices"])), say("error: Invalid Argument")),
        (create(small, 0), say("ok")),
        (json!({ "do": "createCompute", "gpu": 0, "profile": full }), say("ok")),
        (json!({ "do": "createCompute", "gpu": 0, "profile": 0 }), say("error: Insufficient Resources")),
        (json!({ "do": "createCompute", "gpu": 1, "profile": 0 }), say("ok")),
        (
            json!({ "do": "list" }),
            list(&both, {
                let mut devices = vec![(half_id, half), (small_id, small)];
                devices.sort_by_key(|(id, _)| *id);
                (0..).zip(devices).map(|(index, (id, profile))| device(index, id, profile)).collect()
            }),
        ),
        (json!({ "do": "mode", "on": 0 }), json!(["ok", "error: In use by another client", 1, 0])),
        (json!({ "do": "mode", "on": 1 }), json!(["ok", "ok", 1, 1])),
        (json!({ "do": "destroy", "gpu": 1 }), say("error: In use by another client")),
        (json!({ "do": "destroyCompute", "compute": 1 }), say("ok")),
        (json!({ "do": "destroyCompute", "compute": 1 }), say("error: Invalid Argument")),
        (json!({ "do": "destroy", "gpu": 1 }), say("ok")),
        (json!({ "do": "destroyCompute", "compute": 0 }), say("ok")),
        (json!({ "do": "list" }), list(&left, vec![])),
        (json!({ "do": "destroy", "gpu": 0 }), say("ok")),
        (json!({ "do": "destroy", "gpu": 0 }), say("error: Invalid Argument")),
        (json!({ "do": "list" }), list(&none, vec![])),
    ]
}

/// How many more instances of each profile fit: its free places, up to its maximum. Engines are no limit here, since no
/// instance of the test takes more than its share.
fn capacity(card: &Value, instances: &Value) -> Value {
    let taken: Vec<Value> = instances.as_object().into_iter().flat_map(Map::values).cloned().collect();
    let mut all = Map::new();
    for profile in profiles(card) {
        let size = number(&profile["memorySlices"]);
        let free = |start: &u64| {
            taken.iter().all(|other| {
                let (first, length) = (number(&other["start"]), number(&other["size"]));
                start + size <= first || first + length <= *start
            })
        };
        let places = starts(&profile).iter().filter(|start| free(start)).count() as u64;
        let made = taken.iter().filter(|other| other["profile"] == profile["id"]).count() as u64;
        let left = number(&profile["maxInstances"]) - made;
        all.insert(profile["id"].to_string(), json!(with_engines(card, &taken, &profile, places.min(left))));
    }
    Value::Object(all)
}

/// How many of `most` further instances of a profile the card has engines for.
fn with_engines(card: &Value, taken: &[Value], profile: &Value, most: u64) -> u64 {
    let profiles = profiles(card);
    let of = |id: &Value| profiles.iter().find(|profile| profile["id"] == *id);
    ["copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines"].iter().fold(most, |most, kind| {
        let Some(each) = profile[kind].as_u64().filter(|each| *each > 0) else { return most };
        let Some(all) = profiles.iter().filter_map(|profile| profile[kind].as_u64()).max() else {
            return most;
        };
        let used: u64 = taken.iter().filter_map(|other| of(&other["profile"])?[kind].as_u64()).sum();
        most.min((all - used) / each)
    })
}

fn device(card: &Value, index: u64, id: u64, profile: &Value) -> Value {
    let memory = number(&profile["memoryMiB"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    json!({
        "name": format!("{} MIG {}", text(&card["board"]["name"]), text(&profile["name"])),
        "uuid": "a UUID",
        "gpuInstance": id,
        "computeInstance": 0,
        "index": index,
        "isMig": true,
        "memory": memory << 20,
        "parent": card["uuid"],
        "foundByUuid": true,
        "multiprocessors": number(&profile["multiprocessors"]),
        "memoryMiB": memory,
        "gpuSlices": profile["computeSlices"],
        "computeSlices": profile["computeSlices"],
    })
}
