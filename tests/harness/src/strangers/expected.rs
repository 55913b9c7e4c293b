//! The correct reading of a machine, computed from the facts from which the machine was made.
//!
//! Deliberately not the emulator's own code: numbers are from `nvml.h`.

use serde_json::{Map, Value, json};

/// An unknown fact is read as not supported.
const NOT_SUPPORTED: Value = Value::Null;

/// The expected document of strangers for a machine with `gpu-emulator show -o json` equal to `facts`.
#[must_use]
pub fn document(facts: &Value) -> Value {
    let machine = &facts["machine"];
    let driver = machine["driver"]["version"].as_str().unwrap_or_default();
    let cuda = machine["driver"]["cudaVersion"].as_str().unwrap_or_default();
    let (major, minor) = cuda.split_once('.').unwrap_or_default();
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    let cards = list(&machine["cards"]);
    let indexes = 0..cards.len();
    json!({
        "driverVersion": driver,
        "nvmlVersion": format!("{major}.{driver}"),
        "cudaDriverVersion": number(major) * 1000 + number(minor) * 10,
        "cards": indexes.clone().map(|index| card(facts, index)).collect::<Vec<_>>(),
        "levels": list(&machine["levels"])
            .iter()
            .map(|row| list(row).iter().map(level).collect::<Vec<_>>())
            .collect::<Vec<_>>(),
        "nvlinkPeers": indexes
            .clone()
            .map(|one| indexes.clone().map(|other| peer(facts, one, other)).collect::<Vec<_>>())
            .collect::<Vec<_>>(),
    })
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// `nvmlGpuTopologyLevel_t`
fn level(name: &Value) -> Value {
    match name.as_str() {
        Some("INT") => json!(0),
        Some("PIX") => json!(10),
        Some("PXB") => json!(20),
        Some("PHB") => json!(30),
        Some("NODE") => json!(40),
        Some("SYS") => json!(50),
        _ => NOT_SUPPORTED,
    }
}

/// `nvmlGpuP2PStatus_t` over NVLink: OK where an active link connects the two.
fn peer(facts: &Value, one: usize, other: usize) -> Value {
    if one == other {
        return json!("error: Invalid Argument");
    }
    let up = |card: usize, fits: &dyn Fn(&Value) -> bool| {
        let links = list(&facts["machine"]["cards"][card]["links"]);
        (0..links.len()).any(|link| fits(&links[link]["remote"]) && active(facts, card, link))
    };
    let switched = |card: usize| up(card, &|remote| remote["type"] == "switch");
    let direct = up(one, &|remote| remote["type"] == "card" && remote["index"] == other);
    json!(if direct || (switched(one) && switched(other)) { 0 } else { 5 })
}

/// Whether a link is connected and neither of its ends was taken down.
fn active(facts: &Value, card: usize, link: usize) -> bool {
    let links_of = |card: usize| list(&facts["machine"]["cards"][card]["links"]);
    let down =
        |card: usize, link: usize| list(&facts["state"]["cards"][card]["linksDown"]).contains(&json!(link));
    let remote = &links_of(card)[link]["remote"];
    if remote.is_null() || down(card, link) {
        return false;
    }
    let Some(other) = remote["index"].as_u64().and_then(|index| usize::try_from(index).ok()) else {
        return true;
    };
    // The n-th link in one direction is the n-th in the other.
    let between = |from: usize, to: usize| {
        let links = links_of(from);
        (0..links.len()).filter(|link| links[*link]["remote"]["index"] == to).collect::<Vec<_>>()
    };
    let position = between(card, other).iter().position(|found| *found == link);
    position
        .and_then(|position| between(other, card).get(position).copied())
        .is_none_or(|theirs| !down(other, theirs))
}

fn card(facts: &Value, index: usize) -> Value {
    let (card, state) = (&facts["machine"]["cards"][index], &facts["state"]["cards"][index]);
    let board = &card["board"];
    let mebibytes = |value: &Value| value.as_u64().map_or(0, |value| value << 20);
    let total = mebibytes(&board["memoryTotalMiB"]);
    let reserved = mebibytes(&board["memoryReservedMiB"]);
    let processes = list(&state["processes"]);
    let used: u64 = processes.iter().filter_map(|process| process["usedMemoryBytes"].as_u64()).sum();
    let or = |first: &Value, second: &Value| if first.is_null() { second.clone() } else { first.clone() };
    let listed = |kind: &str| {
        let of_kind = processes.iter().filter(|process| process["kind"] == kind);
        of_kind
            .map(|process| json!({ "pid": process["pid"], "usedGpuMemory": process["usedMemoryBytes"] }))
            .collect::<Vec<_>>()
    };
    let limits = [&board["powerLimitMinMilliwatts"], &board["powerLimitMaxMilliwatts"]];
    let mut readings = Map::new();
    let mut put = |name: &str, value: Value| readings.insert(name.to_owned(), value);
    put("name", board["name"].clone());
    put("uuid", card["uuid"].clone());
    put("serial", card["serial"].clone());
    put("index", json!(index));
    put("minor", card["minor"].clone());
    put("brand", brand(&board["brand"]));
    put("architecture", architecture(&board["architecture"]));
    put("computeCapability", board["computeCapability"].clone());
    put("pci", pci(&card["pci"], &board["pciDeviceId"], &board["pciSubsystemId"]));
    put("boardPartNumber", board["boardPartNumber"].clone());
    put("vbiosVersion", board["vbiosVersion"].clone());
    put("memory", json!({ "total": total, "free": total - reserved - used, "used": reserved + used }));
    put(
        "memoryV2",
        json!({ "total": total, "reserved": reserved, "free": total - reserved - used, "used": used }),
    );
    put("bar1Total", board["bar1TotalMiB"].as_u64().map_or(NOT_SUPPORTED, |total| json!(total << 20)));
    put("migMode", if board["migCapable"] == true { json!([0, 0]) } else { NOT_SUPPORTED });
    put("moduleId", card["moduleId"].clone());
    put("memoryNumaNode", card["memoryNumaNode"].clone());
    put("cpus", card["cpus"].as_str().map_or(NOT_SUPPORTED, |cpus| json!(numbers(cpus))));
    put("numaNodes", if card["numaNode"].is_null() { NOT_SUPPORTED } else { json!([card["numaNode"]]) });
    put("links", links(facts, index));
    put("fabric", fabric(card));
    put("powerUsage", or(&state["powerUsageMilliwatts"], &board["powerUsageMilliwatts"]));
    put("powerLimit", or(&state["powerLimitMilliwatts"], &board["powerLimitDefaultMilliwatts"]));
    put(
        "powerLimits",
        if limits.iter().any(|limit| limit.is_null()) { NOT_SUPPORTED } else { json!(limits) },
    );
    put("temperature", or(&state["temperatureCelsius"], &board["temperatureCelsius"]));
    put("memoryClockMax", board["clocksMaxMHz"]["memory"].clone());
    put("computeMode", state["computeMode"].clone());
    put("ecc", board["eccEnabled"].as_bool().map_or(NOT_SUPPORTED, |enabled| json!(u8::from(enabled))));
    put("pcieGenerationMax", board["pcieGenerationMax"].clone());
    put("utilization", json!([state["utilizationGpu"], state["utilizationMemory"]]));
    put("computeProcesses", json!(listed("compute")));
    put("graphicsProcesses", json!(listed("graphics")));
    // XIDs, and memory errors on cards with ECC.
    put("eventTypes", json!(if board["eccEnabled"].is_null() { 8 } else { 11 }));
    Value::Object(readings)
}

/// `nvmlBrandType_t`
fn brand(name: &Value) -> Value {
    match name.as_str() {
        Some("Quadro") => json!(1),
        Some("Tesla") => json!(2),
        Some("Quadro RTX") => json!(12),
        Some("NVIDIA RTX") => json!(13),
        Some("NVIDIA") => json!(14),
        _ => NOT_SUPPORTED,
    }
}

/// `nvmlDeviceArchitecture_t`
fn architecture(name: &Value) -> Value {
    let names = ["Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell"];
    let position = names.iter().position(|known| name.as_str() == Some(known));
    position.map_or(NOT_SUPPORTED, |position| json!(position + 4))
}

/// CPU numbers of a kernel list.
fn numbers(list: &str) -> Vec<u32> {
    let number = |text: &str| text.parse().unwrap_or_default();
    list.split(',')
        .flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            number(first)..=number(last)
        })
        .collect()
}

/// `nvmlPciInfo_t` of an address such as `0000:3b:00.0`; ids are texts such as `0x233010DE`.
fn pci(address: &Value, device: &Value, subsystem: &Value) -> Value {
    let text = address.as_str().unwrap_or_default().trim_end_matches(".0");
    let mut parts = text.split(':').map(|part| u32::from_str_radix(part, 16).unwrap_or_default());
    let mut next = || parts.next().unwrap_or_default();
    let (domain, bus, slot) = (next(), next(), next());
    let id = |text: &Value| {
        let digits = text.as_str().unwrap_or_default().trim_start_matches("0x").to_owned();
        u32::from_str_radix(&digits, 16).unwrap_or_default()
    };
    json!({
        "busId": format!("{domain:08X}:{bus:02X}:{slot:02X}.0"),
        "domain": domain,
        "bus": bus,
        "device": slot,
        "deviceId": id(device),
        "subsystemId": id(subsystem),
    })
}

fn links(facts: &Value, index: usize) -> Value {
    let machine = &facts["machine"];
    let nvlink = &machine["nvlink"];
    // nvmlNvlinkVersion_t: 1.0, 2.0, 3.0, 4.0, 5.0
    let version =
        nvlink["generation"].as_u64().map(|generation| [0, 1, 2, 4, 6, 7][generation.min(5) as usize]);
    let links = list(&machine["cards"][index]["links"]);
    let describe = |(number, link): (usize, &Value)| {
        let remote = &link["remote"];
        let active = active(facts, index, number);
        let (kind, end) = match remote["type"].as_str() {
            Some("card") if active => {
                let other = &machine["cards"][remote["index"].as_u64().unwrap_or_default() as usize];
                let board = &other["board"];
                (json!(0), pci(&other["pci"], &board["pciDeviceId"], &board["pciSubsystemId"]))
            }
            Some("switch") if active && remote["pci"].is_null() => (
                json!(2),
                json!({
                    "busId": "FFFFFFFF:FFFF:FF.0",
                    "domain": u32::MAX,
                    "bus": 0xffff,
                    "device": 0xff,
                    "deviceId": 0,
                    "subsystemId": 0,
                }),
            ),
            Some("switch") if active => (json!(2), pci(&remote["pci"], &nvlink["switchPciId"], &Value::Null)),
            _ => (NOT_SUPPORTED, NOT_SUPPORTED),
        };
        json!({ "active": active, "version": version, "remoteType": kind, "remotePci": end, "peerToPeer": 1 })
    };
    links.iter().enumerate().map(describe).collect()
}

/// Registration with an NVLink fabric: for Hopper and newer.
fn fabric(card: &Value) -> Value {
    if !matches!(card["board"]["architecture"].as_str(), Some("Hopper" | "Blackwell")) {
        return NOT_SUPPORTED;
    }
    let fabric = &card["fabric"];
    let or_zero = |value: &Value| value.as_u64().unwrap_or_default();
    let cluster = fabric["clusterUuid"].as_str().map_or("0".repeat(32), |uuid| uuid.replace('-', ""));
    json!({
        "clusterUuid": cluster,
        "cliqueId": or_zero(&fabric["clique"]),
        "state": if fabric.is_null() { 0 } else { 3 },
        "status": 0,
        "healthMask": or_zero(&fabric["healthMask"]),
        "healthSummary": or_zero(&fabric["healthSummary"]),
    })
}

/// The differences of two documents, each as `path: expected …, found …`.
#[must_use]
pub fn differences(expected: &Value, found: &Value) -> Vec<String> {
    let mut all = Vec::new();
    compare("", expected, found, &mut all);
    all
}

fn compare(path: &str, expected: &Value, found: &Value, all: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let missing = json!("(missing)");
                let (one, other) = (one.get(key).unwrap_or(&missing), other.get(key).unwrap_or(&missing));
                compare(&format!("{path}/{key}"), one, other, all);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (position, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{path}/{position}"), one, other, all);
            }
        }
        (one, other) if one == other => {}
        (one, other) => all.push(format!("{path}: expected {one}, found {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_named() {
        let one = json!({ "a": [1, { "b": 2 }], "c": 3 });
        assert_eq!(differences(&one, &one), Vec::<String>::new());
        let other = json!({ "a": [1, { "b": 4 }], "d": 5 });
        assert_eq!(
            differences(&one, &other),
            [
                "/a/1/b: expected 2, found 4",
                "/c: expected 3, found \"(missing)\"",
                "/d: expected \"(missing)\", found 5"
            ]
        );
        assert_eq!(differences(&json!([1]), &json!([])), [": expected [1], found []"]);
    }
}
