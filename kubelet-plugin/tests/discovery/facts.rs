//! One look at a machine.

use serde_json::Value;
use tessera_inventory::Machine;
use tessera_inventory::machine::{Card, CommonAncestor, FabricState, Health, NvLinkRemote};
use tessera_kubelet_plugin::discovery::Discovery;
use tessera_nvml::Library;

use crate::machine::{EmulatedMachine, hardware};

fn look_at(machine: &EmulatedMachine) -> Discovery {
    let library = Library::open_below(&machine.root()).unwrap();
    let mut discovery = Discovery::new(machine.root().join("sys"));
    discovery.read_once(&library);
    discovery
}

#[test]
fn every_machine_is_found_as_its_data_say() {
    for name in hardware() {
        let emulated = EmulatedMachine::new(&name);
        let discovery = look_at(&emulated);
        assert_eq!(discovery.problems(), [], "{name}");
        let machine = discovery.machine().unwrap();
        assert_eq!(machine.driver_version.as_deref(), emulated.facts["driver"]["version"].as_str());
        assert_eq!(machine.cards.len(), emulated.cards().len(), "{name}");
        for (card, facts) in machine.cards.iter().zip(emulated.cards()) {
            whole_card(&format!("{name}, card {}", card.pci), card, facts);
            links(&format!("{name}, card {}", card.pci), card, facts, &machine);
        }
        pairs(&name, &machine, &emulated);
    }
}

fn whole_card(context: &str, card: &Card, facts: &Value) {
    let board = &facts["board"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    assert_eq!(Some(card.pci.to_string()), text(&facts["pci"]), "{context}");
    assert_eq!(card.uuid, text(&facts["uuid"]), "{context}");
    assert_eq!(card.index.map(u64::from), facts["index"].as_u64(), "{context}");
    assert_eq!(card.minor.map(u64::from), facts["minor"].as_u64(), "{context}");
    assert_eq!(card.product_name, text(&board["name"]), "{context}");
    assert_eq!(card.architecture, text(&board["architecture"]), "{context}");
    assert_eq!(card.addressing_mode, text(&board["addressingMode"]), "{context}");
    assert_eq!(
        card.memory_bytes,
        board["memoryTotalMiB"].as_u64().map(|mebibytes| mebibytes << 20),
        "{context}"
    );
    assert_eq!(card.mig_capable, board["migCapable"].as_bool(), "{context}");
    match &card.mig {
        None => assert!(facts["mig"].is_null(), "{context}"),
        Some(mig) => {
            assert_eq!(
                Some(u64::from(mig.memory_slices())),
                facts["mig"]["memorySlices"].as_u64(),
                "{context}"
            );
            assert_eq!(
                Some(mig.mode_switch_needs_reset),
                facts["mig"]["modeNeedsReset"].as_bool(),
                "{context}"
            );
            assert_eq!(mig.profiles.len(), facts["mig"]["profiles"].as_array().unwrap().len(), "{context}");
            assert_eq!((mig.mode, mig.instances.len()), (false, 0), "{context}");
        }
    }
    assert_eq!(card.numa_node.map(u64::from), facts["numaNode"].as_u64(), "{context}");
    assert_eq!(card.pcie_root, text(&facts["pcieRoot"]), "{context}");
    assert_eq!(card.health, Health::Healthy, "{context}");
    match &facts["fabric"] {
        Value::Null => assert_eq!(card.fabric, None, "{context}"),
        expected => {
            let fabric = card.fabric.as_ref().unwrap();
            assert_eq!(fabric.state, FabricState::Completed, "{context}");
            assert_eq!(Some(fabric.cluster.to_string()), text(&expected["clusterUuid"]), "{context}");
            assert_eq!(u64::from(fabric.clique), expected["clique"].as_u64().unwrap(), "{context}");
        }
    }
}

fn links(context: &str, card: &Card, facts: &Value, machine: &Machine) {
    let active =
        facts["links"].as_array().unwrap().iter().map(|link| &link["remote"]).filter(|it| !it.is_null());
    let expected: Vec<NvLinkRemote> = active
        .map(|remote| match remote["index"].as_u64() {
            Some(index) => NvLinkRemote::Gpu(machine.cards[usize::try_from(index).unwrap()].pci),
            None => NvLinkRemote::Switch,
        })
        .collect();
    let found: Vec<NvLinkRemote> = card.nvlinks.as_ref().unwrap().iter().map(|link| link.remote).collect();
    assert_eq!(found, expected, "{context}");
    assert!(card.nvlinks.iter().flatten().all(|link| link.version.is_some()), "{context}");
}

fn pairs(name: &str, machine: &Machine, emulated: &EmulatedMachine) {
    for (i, one) in machine.cards.iter().enumerate() {
        for (j, other) in machine.cards.iter().enumerate().filter(|(j, _)| *j != i) {
            let expected = match emulated.facts["levels"][i][j].as_str().unwrap() {
                "INT" => CommonAncestor::Internal,
                "PIX" => CommonAncestor::SingleSwitch,
                "PXB" => CommonAncestor::MultipleSwitches,
                "PHB" => CommonAncestor::HostBridge,
                "NODE" => CommonAncestor::Node,
                _ => CommonAncestor::System,
            };
            let pair = machine.pairs.get(one.pci, other.pci);
            assert_eq!(pair.common_ancestor, Some(expected), "{name}, cards {i} and {j}");
            assert!(pair.nvlink_peer_access.is_some(), "{name}, cards {i} and {j}");
        }
    }
}

#[test]
fn without_sysfs_everything_else_is_found() {
    let emulated = EmulatedMachine::new("hgx-h100-80gb");
    std::fs::remove_dir_all(emulated.root().join("sys")).unwrap();
    let discovery = look_at(&emulated);
    let machine = discovery.machine().unwrap();
    assert_eq!(machine.cards.len(), 8);
    for card in &machine.cards {
        assert_eq!((&card.pcie_root, card.numa_node), (&None, None));
        assert!(card.uuid.is_some() && card.memory_bytes.is_some());
    }
    let missing: Vec<&str> = discovery.problems().iter().map(|problem| problem.fact).collect();
    assert_eq!(missing.len(), 16);
    assert!(missing.iter().all(|fact| ["pcieRoot", "numaNode"].contains(fact)), "{missing:?}");
    assert!(discovery.problems().iter().all(|problem| problem.message.contains("--sysfs-root")));
}

#[test]
fn a_numa_node_without_cpus_is_not_told() {
    let emulated = EmulatedMachine::new("gb200-tray");
    let cpus = emulated.root().join("sys/devices/system/node/node0/cpulist");
    std::fs::write(cpus, "\n").unwrap();
    let machine = look_at(&emulated).machine().unwrap();
    for card in &machine.cards {
        assert_ne!(card.numa_node, Some(0));
    }
}

#[test]
fn a_card_that_errors_on_one_query_is_found_without_that_fact() {
    let emulated = EmulatedMachine::new("hgx-h100-80gb");
    emulated.let_happen("fault --card 3 --call nvmlDeviceGetName --error UNKNOWN");
    let discovery = look_at(&emulated);
    let machine = discovery.machine().unwrap();
    assert_eq!(machine.cards.len(), 8);
    for (index, card) in machine.cards.iter().enumerate() {
        assert_eq!(card.product_name.is_none(), index == 3);
        assert!(card.uuid.is_some() && card.health == Health::Healthy);
    }
    let [problem] = discovery.problems() else { panic!("{:?}", discovery.problems()) };
    assert_eq!((problem.card, problem.fact), (Some(machine.cards[3].pci), "productName"));
    assert!(problem.message.contains("nvmlDeviceGetName"), "{problem}");
}

#[test]
fn a_card_without_its_uuid_is_left_out_and_the_others_live() {
    let emulated = EmulatedMachine::new("hgx-h100-80gb");
    emulated.let_happen("fault --card 3 --call nvmlDeviceGetUUID --error UNKNOWN");
    let discovery = look_at(&emulated);
    let machine = discovery.machine().unwrap();
    assert_eq!(machine.cards.len(), 7);
    assert!(discovery.problems().iter().any(|problem| problem.message.contains("left out")));
}

#[test]
fn a_card_that_was_lost_before_the_start_is_left_out_and_told() {
    let emulated = EmulatedMachine::new("hgx-h100-80gb");
    emulated.let_happen("lose --card 0");
    let discovery = look_at(&emulated);
    assert_eq!(discovery.machine().unwrap().cards.len(), 7);
    assert!(!discovery.problems().is_empty());
}
