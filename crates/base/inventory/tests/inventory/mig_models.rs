//! The models of `data/mig-profiles.txt`, as facts that their driver would state.

use tessera_inventory::Machine;
use tessera_inventory::machine::{Card, GpuInstanceProfile, Mig, Placement};

use crate::known_machines::address;

/// A model of card.
#[derive(Clone, Debug)]
pub struct Model {
    pub name: &'static str,
    pub architecture: &'static str,
    pub memory_bytes: u64,
    pub profiles: Vec<GpuInstanceProfile>,
    /// Starts of each profile's placements in the order that each rule shall give: balanced, highest start.
    pub orders: Vec<[Vec<u32>; 2]>,
}

pub fn all() -> Vec<Model> {
    let mut models: Vec<Model> = Vec::new();
    for line in include_str!("../data/mig-profiles.txt").lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('|').collect();
        let words: Vec<&str> = columns[0].split_whitespace().collect();
        if let ["model", name, architecture, memory] = words[..] {
            let memory_bytes = memory.parse::<u64>().unwrap() << 20;
            models.push(Model { name, architecture, memory_bytes, profiles: Vec::new(), orders: Vec::new() });
            continue;
        }
        let number = |position: usize| words[position].parse::<u32>().unwrap();
        let starts = |column: usize| -> Vec<u32> {
            columns[column].split_whitespace().map(|start| start.parse().unwrap()).collect()
        };
        let model = models.last_mut().unwrap();
        model.profiles.push(GpuInstanceProfile {
            name: words[0].to_owned(),
            id: number(1),
            compute_slices: number(2),
            max_instances: number(3),
            memory_bytes: u64::from(number(4)) << 20,
            multiprocessors: number(5),
            copy_engines: number(6),
            decoders: number(7),
            encoders: number(8),
            jpeg_engines: number(9),
            ofa_engines: number(10),
            placements: starts(1).into_iter().map(|start| Placement { start, size: number(11) }).collect(),
        });
        model.orders.push([starts(2), starts(3)]);
    }
    assert_eq!(models.len(), 13);
    models
}

pub fn named(name: &str) -> Model {
    all().into_iter().find(|model| model.name == name).unwrap()
}

impl Model {
    /// A machine of so many of these cards, MIG mode off.
    pub fn machine(&self, cards: usize) -> Machine {
        let mig = Mig {
            mode_switch_needs_reset: self.architecture == "Ampere",
            profiles: self.profiles.clone(),
            ..Mig::default()
        };
        let card = |position: usize| Card {
            uuid: Some(format!("GPU-6d1e1f4a-0000-4000-8000-{position:012}")),
            product_name: Some(format!("NVIDIA {}", self.name)),
            architecture: Some(self.architecture.to_owned()),
            memory_bytes: Some(self.memory_bytes),
            mig_capable: Some(true),
            mig: Some(mig.clone()),
            ..Card::new(address(position))
        };
        Machine { cards: (0..cards).map(card).collect(), ..Machine::default() }
    }

    /// [`Self::machine`], MIG mode on.
    pub fn machine_in_mig_mode(&self, cards: usize) -> Machine {
        let mut machine = self.machine(cards);
        for mig in machine.cards.iter_mut().filter_map(|card| card.mig.as_mut()) {
            mig.mode = true;
        }
        machine
    }

    pub fn profile(&self, name: &str) -> &GpuInstanceProfile {
        self.profiles.iter().find(|profile| profile.name == name).unwrap()
    }

    /// Whether these instances can exist side by side, as the driver decides it: placements apart, no profile more often
    /// than it says, and no more engines of a kind than the best equipped profile has.
    pub fn is_possible(&self, instances: &[(&GpuInstanceProfile, Placement)]) -> bool {
        for (position, (profile, placement)) in instances.iter().enumerate() {
            let apart = |(_, other): &(&GpuInstanceProfile, Placement)| {
                placement.start + placement.size <= other.start || other.start + other.size <= placement.start
            };
            let same = instances.iter().filter(|(other, _)| other.name == profile.name).count();
            if !instances[..position].iter().all(apart) || same > profile.max_instances as usize {
                return false;
            }
        }
        type Engine = fn(&GpuInstanceProfile) -> u32;
        let engines: [Engine; 5] = [
            |profile| profile.copy_engines,
            |profile| profile.decoders,
            |profile| profile.encoders,
            |profile| profile.jpeg_engines,
            |profile| profile.ofa_engines,
        ];
        engines.into_iter().all(|engine| {
            let there = self.profiles.iter().map(engine).max().unwrap_or(0);
            instances.iter().map(|(profile, _)| engine(profile)).sum::<u32>() <= there
        })
    }
}
