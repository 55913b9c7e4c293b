//! Every machine the emulator knows is read as its own data say.

use std::fmt::Debug;

use serde_json::Value;
use tessera_nvml::{
    AddressingMode, Architecture, Brand, CardReadings, CommonAncestor, FabricState, Library, NvLinkReadings,
    NvLinkRemote, NvLinkVersion, Nvml, PciBusId, PeerToPeer,
};

use crate::machine::{EmulatedMachine, hardware};

#[test]
fn every_machine_is_read_as_its_data_say() {
    for name in hardware() {
        let machine = EmulatedMachine::new(&name);
        let library = Library::open_below(&machine.root()).unwrap();
        assert_eq!(library.driver_version().unwrap(), machine.facts["driver"]["version"].as_str().unwrap());
        assert_eq!(
            library.cuda_version().unwrap().to_string(),
            machine.facts["driver"]["cudaVersion"].as_str().unwrap()
        );
        let addresses: Vec<PciBusId> = library.addresses().unwrap().into_iter().map(Result::unwrap).collect();
        assert_eq!(addresses.len(), machine.cards().len(), "{name}");
        for (address, facts) in addresses.iter().zip(machine.cards()) {
            let card = library.card(*address).unwrap();
            let context = format!("{name}, card {}", facts["index"]);
            whole_card(&context, &card, facts);
            links(&context, &card, facts, &machine);
            identity(&context, &library, &card);
        }
        pairs(&name, &library, &addresses, &machine);
    }
}

fn whole_card(context: &str, card: &CardReadings, facts: &Value) {
    let board = &facts["board"];
    assert_eq!(card.address.to_string(), text(&facts["pci"]), "{context}");
    assert_eq!(card.index, Ok(number(&facts["index"]) as u32), "{context}");
    assert_eq!(card.minor, Ok(number(&facts["minor"]) as u32), "{context}");
    assert_eq!(card.uuid.as_deref(), Ok(text(&facts["uuid"])), "{context}");
    let id = card.pci_device_id.as_ref().map(|id| format!("0x{id:08x}"));
    assert_eq!(id, Ok(text(&board["pciDeviceId"]).to_lowercase()), "{context}");
    assert_eq!(card.name.as_deref(), Ok(text(&board["name"])), "{context}");
    let brand = said(context, &card.brand).and_then(Brand::name).unwrap();
    assert!(brand.eq_ignore_ascii_case(&text(&board["brand"]).replace(' ', "")), "{context}: {brand}");
    let architecture = said(context, &card.architecture).and_then(Architecture::name);
    assert_eq!(architecture, Some(text(&board["architecture"])), "{context}");
    let capability = said(context, &card.compute_capability).unwrap().to_string();
    assert_eq!(capability, text(&board["computeCapability"]), "{context}");
    let memory = said(context, &card.memory).unwrap();
    assert_eq!(memory.total >> 20, number(&board["memoryTotalMiB"]), "{context}");
    if let Some(reserved) = board["memoryReservedMiB"].as_u64() {
        assert_eq!(memory.reserved >> 20, reserved, "{context}");
    }
    assert_eq!(memory.total, memory.reserved + memory.used + memory.free, "{context}");
    let mig = said(context, &card.mig);
    assert_eq!(mig.is_some(), board["migCapable"].as_bool().unwrap(), "{context}");
    assert!(mig.is_none_or(|mode| !mode.current && !mode.pending), "{context}");
    let addressing = said(context, &card.addressing_mode).map(AddressingMode::name);
    assert_eq!(addressing, board["addressingMode"].as_str(), "{context}");
    let cpus = said(context, &card.cpu_affinity).map(|cpus| cpus.to_string());
    assert_eq!(cpus.as_deref(), facts["cpus"].as_str(), "{context}");
    let fabric = said(context, &card.fabric);
    match facts["fabric"].as_object() {
        None => assert_eq!(fabric, None, "{context}"),
        Some(facts) => {
            let fabric = fabric.unwrap();
            assert_eq!(fabric.state, FabricState::Completed, "{context}: {fabric:?}");
            assert_eq!(fabric.cluster.to_string(), text(&facts["clusterUuid"]), "{context}");
            assert_eq!(u64::from(fabric.clique), number(&facts["clique"]), "{context}");
        }
    }
}

fn links(context: &str, card: &CardReadings, facts: &Value, machine: &EmulatedMachine) {
    let links = card.links.as_ref().unwrap();
    let expected = facts["links"].as_array().unwrap();
    assert_eq!(links.len(), expected.len(), "{context}");
    for (link, expected) in links.iter().zip(expected) {
        let remote = &expected["remote"];
        assert_eq!(link.active, !remote.is_null(), "{context}, link {}", link.link);
        if link.active {
            active_link(&format!("{context}, link {}", link.link), link, remote, machine);
        }
    }
}

fn active_link(context: &str, link: &NvLinkReadings, remote: &Value, machine: &EmulatedMachine) {
    let generation = match said(context, &link.version).unwrap() {
        NvLinkVersion::V1_0 => 1,
        NvLinkVersion::V2_0 | NvLinkVersion::V2_2 => 2,
        NvLinkVersion::V3_0 | NvLinkVersion::V3_1 => 3,
        NvLinkVersion::V4_0 => 4,
        NvLinkVersion::V5_0 => 5,
    };
    assert_eq!(generation, number(&machine.facts["nvlink"]["generation"]), "{context}");
    if let Some(speed) = machine.facts["nvlink"]["megabytesPerSecond"].as_u64() {
        assert_eq!(said(context, &link.megabytes_per_second), Some(speed), "{context}");
    }
    let expected = if text(&remote["type"]) == "card" {
        let other = &machine.cards()[number(&remote["index"]) as usize];
        NvLinkRemote::Gpu(text(&other["pci"]).parse().unwrap())
    } else {
        NvLinkRemote::Switch
    };
    assert_eq!(link.remote, Ok(Some(expected)), "{context}");
}

fn identity(context: &str, library: &Library, card: &CardReadings) {
    let identity = library.identify(card.address).unwrap();
    assert_eq!(Ok(&identity.uuid), card.uuid.as_ref(), "{context}");
    assert_eq!(Ok(identity.minor), card.minor, "{context}");
    assert_eq!(Ok(identity.index), card.index, "{context}");
    assert_eq!(identity.mig_mode, said(context, &card.mig).map(|mode| mode.current), "{context}");
}

fn pairs(name: &str, library: &Library, addresses: &[PciBusId], machine: &EmulatedMachine) {
    for (i, one) in addresses.iter().enumerate() {
        for (j, other) in addresses.iter().enumerate().filter(|(j, _)| *j != i) {
            let context = format!("{name}, cards {i} and {j}");
            let pair = library.pair(*one, *other).unwrap();
            let level = match text(&machine.facts["levels"][i][j]) {
                "INT" => CommonAncestor::Internal,
                "PIX" => CommonAncestor::SingleSwitch,
                "PXB" => CommonAncestor::MultipleSwitches,
                "PHB" => CommonAncestor::HostBridge,
                "NODE" => CommonAncestor::Node,
                "SYS" => CommonAncestor::System,
                other => panic!("{context}: level {other}"),
            };
            assert_eq!(pair.common_ancestor, Ok(Some(level)), "{context}");
            let linked =
                leads_to(&machine.cards()[i], j) || (has_switch(machine, i) && has_switch(machine, j));
            let nvlink = said(&context, &pair.nvlink) == Some(PeerToPeer::Ok);
            assert_eq!(nvlink, linked, "{context}");
        }
    }
}

fn leads_to(card: &Value, other: usize) -> bool {
    let links = card["links"].as_array().unwrap();
    links
        .iter()
        .any(|link| link["remote"]["type"] == "card" && number(&link["remote"]["index"]) as usize == other)
}

fn has_switch(machine: &EmulatedMachine, card: usize) -> bool {
    let links = machine.cards()[card]["links"].as_array().unwrap();
    links.iter().any(|link| link["remote"]["type"] == "switch")
}

fn said<T: Clone + Debug>(context: &str, answer: &tessera_nvml::Reading<T>) -> Option<T> {
    answer.as_ref().unwrap_or_else(|error| panic!("{context}: {error}")).clone()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}
