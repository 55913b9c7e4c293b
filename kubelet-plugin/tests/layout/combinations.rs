//! Every valid layout of an A100, by placements and by counts.

use std::fmt::Write as _;

use tessera_inventory::layout::{combinations, maximal_layouts};
use tessera_inventory::machine::{GpuInstanceProfile, Mig};
use tessera_kubelet_plugin::discovery::Discovery;
use tessera_kubelet_plugin::layout::LayoutState;
use tessera_nvml::{Library, Nvml};

use crate::machine::EmulatedMachine;
use crate::node::Node;

fn facts(machine: &EmulatedMachine, library: &Library) -> Mig {
    let mut discovery = Discovery::new(machine.root().join("sys"));
    discovery.read_once(library);
    discovery.machine().unwrap().cards[0].mig.clone().unwrap()
}

fn without_media(profile: &GpuInstanceProfile) -> bool {
    !profile.name.ends_with("+me")
}

/// All 78 maximal sets of placements, among them the 19 without the double-memory 1g: each can be made on the
/// hardware, and nothing can be added.
#[test]
fn every_maximal_set_of_placements_can_be_made() {
    let machine = EmulatedMachine::new("hgx-a100-80gb");
    let library = Library::open_below(&machine.root()).unwrap();
    let card = library.addresses().unwrap()[0].clone().unwrap();
    let mig = facts(&machine, &library);
    let layouts = maximal_layouts(&mig, without_media);
    assert_eq!(layouts.len(), 78);
    let single = |profile: &GpuInstanceProfile| without_media(profile) && profile.name != "1g.20gb";
    assert_eq!(maximal_layouts(&mig, single).len(), 19);

    library.set_mig_mode(card, true).unwrap();
    machine.let_happen("reset --card 0");
    for layout in layouts {
        let make = |profile: u32, placement| library.create_gpu_instance(card, profile, placement);
        let mut made = Vec::new();
        for instance in &layout.instances {
            let gpu = make(instance.profile_id, instance.placement);
            made.push(gpu.unwrap_or_else(|error| panic!("{layout}: {error}")).id);
        }
        for profile in mig.profiles.iter().filter(|profile| without_media(profile)) {
            for placement in &profile.placements {
                let more = make(profile.id, *placement);
                assert!(more.unwrap_err().is_insufficient_resources(), "{layout}: also {}", profile.name);
            }
        }
        for id in made {
            library.destroy_gpu_instance(card, id).unwrap();
        }
    }
}

/// All combinations of counts to fill an H100, media extensions included, from a file: eight at a time, one per
/// card.
#[tokio::test]
async fn every_maximal_combination_can_be_laid_out() {
    let machine = EmulatedMachine::new("hgx-h100-80gb");
    let mig = facts(&machine, &Library::open_below(&machine.root()).unwrap());
    let all = combinations(&mig, |_| true);
    assert!(all.len() > 38, "{}", all.len());
    let rounds: Vec<_> = all.chunks(8).collect();
    let mut file = "version: v1\nmig-configs:\n".to_owned();
    for (round, combinations) in rounds.iter().enumerate() {
        writeln!(file, "  round-{round}:").unwrap();
        for card in 0..8 {
            let devices = combinations.get(card).map(|combination| combination.counts()).unwrap_or_default();
            let devices = serde_json::to_string(&devices).unwrap();
            writeln!(file, "  - {{devices: [{card}], mig-enabled: true, mig-devices: {devices}}}").unwrap();
        }
    }
    let mut node = Node::start("hgx-h100-80gb", &file, "round-0");
    for (round, combinations) in rounds.iter().enumerate() {
        let name = format!("round-{round}");
        node.api.label.send_replace(Some(name.clone()));
        node.until_all(&name, LayoutState::Applied).await;
        for (card, combination) in combinations.iter().enumerate() {
            let mut counts = std::collections::BTreeMap::new();
            for (profile, _) in node.partitions(card) {
                *counts.entry(profile).or_insert(0) += 1;
            }
            assert_eq!(counts, combination.counts(), "{name}, card {card}");
        }
    }
}
