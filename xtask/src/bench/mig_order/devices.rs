//! The partitions of a card as they are published, in numbers.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use tessera_api::node_config::PlacementOrder;
use tessera_api::{DEFAULT_DRIVER_NAME, DeviceName, PciBusId, Quantity};
use tessera_inventory::machine::{self, GpuInstanceProfile, Mig, Placement};
use tessera_inventory::{Machine, Pool, PoolOptions};

use super::mixes::Mix;

/// The facts, and the orders that a program of its own computed; see the file.
const FACTS: &str = include_str!("../../../../inventory/tests/data/mig-profiles.txt");

/// An order of placements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// By name, as NVIDIA's driver publishes them: the lowest start first.
    ByName,
    /// As published by default.
    Balanced,
    /// As published with `placementOrder: HighestStart`.
    HighestStart,
}

impl Policy {
    pub const ALL: [Self; 3] = [Self::ByName, Self::Balanced, Self::HighestStart];

    pub const fn name(self) -> &'static str {
        match self {
            Self::ByName => "by name (NVIDIA's driver)",
            Self::Balanced => "Balanced (default)",
            Self::HighestStart => "HighestStart",
        }
    }
}

/// A card's partitions.
pub struct Card {
    pub profiles: Vec<Profile>,
    orders: BTreeMap<&'static str, Vec<Vec<u32>>>,
    /// Compute slices of the whole card.
    pub compute_slices: u32,
}

/// A profile without a limit on instances, of which requests are made.
pub struct Profile {
    name: String,
    pub compute_slices: u32,
    size: u32,
}

impl Card {
    /// The card of a model, as it is published.
    pub fn new(model: &str) -> Result<Self> {
        let facts = facts(model)?;
        let mut orders = BTreeMap::new();
        let mut profiles: Vec<Profile> = Vec::new();
        for policy in Policy::ALL {
            let published = published(&facts, policy)?;
            if profiles.is_empty() {
                profiles =
                    published.iter().map(|(profile, _)| of_facts(&facts, profile)).collect::<Result<_>>()?;
            }
            let masks = profiles.iter().map(|profile| published[&profile.name].clone()).collect();
            orders.insert(policy.name(), masks);
        }
        let compute_slices = profiles.iter().map(|profile| profile.compute_slices).max().unwrap_or(1);
        Ok(Self { profiles, orders, compute_slices })
    }

    /// The memory slices of each profile's placements, a bit for each, in the order of trying.
    pub fn order(&self, policy: Policy) -> Vec<Vec<u32>> {
        self.orders[policy.name()].clone()
    }

    /// How often each profile is asked for, summing to 1; None for sizes that the card does not have.
    pub fn shares(&self, mix: &Mix) -> Option<Vec<f64>> {
        let mut shares = vec![0.0; self.profiles.len()];
        let total: f64 = mix.weights.iter().map(|(_, weight)| weight).sum();
        for (size, weight) in mix.weights {
            let (compute, double) = size.split_once('g')?;
            let compute: u32 = compute.parse().ok()?;
            let mut sized: Vec<usize> = (0..self.profiles.len())
                .filter(|position| self.profiles[*position].compute_slices == compute)
                .collect();
            sized.sort_by_key(|position| self.profiles[*position].size);
            let position = if double == "x2" { sized.get(1)? } else { sized.first()? };
            shares[*position] += weight / total;
        }
        Some(shares)
    }
}

fn of_facts(facts: &[GpuInstanceProfile], name: &str) -> Result<Profile> {
    let profile = facts.iter().find(|profile| profile.name == name).context("the profile is published")?;
    let size = profile.placements.first().context("a profile has placements")?.size;
    Ok(Profile { name: name.to_owned(), compute_slices: profile.compute_slices, size })
}

/// The published placements of each profile that draws on memory slices only.
fn published(facts: &[GpuInstanceProfile], policy: Policy) -> Result<BTreeMap<String, Vec<u32>>> {
    let address = PciBusId::new(0, 1, 0, 0)?;
    let mig = Mig { mode: true, pending_mode: true, profiles: facts.to_vec(), ..Mig::default() };
    let card = machine::Card { mig: Some(mig), ..machine::Card::new(address) };
    let machine = Machine { cards: vec![card], ..Machine::default() };
    let mut options = PoolOptions::new(DEFAULT_DRIVER_NAME);
    if policy == Policy::HighestStart {
        options.config.partitioning.placement_order = PlacementOrder::HighestStart;
    }
    let pool = Pool::new(&machine, &options);
    let mut placements: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for device in pool.devices() {
        let Ok(DeviceName::Partition(_)) = device.name.parse() else { continue };
        let attributes = device.attributes.as_ref().context("attributes")?;
        let profile = attributes["profile"].string.clone().context("a profile")?;
        let mut mask = 0u32;
        let mut is_plain = true;
        for (counter, drawn) in device.consumes_counters.iter().flatten().flat_map(|drawn| &drawn.counters) {
            ensure!(
                drawn.value.0.parse::<Quantity>()? == Quantity::decimal(1),
                "a partition draws one of each"
            );
            match counter.strip_prefix("memory-slice-") {
                Some(slice) => mask |= 1 << slice.parse::<u32>()?,
                None => is_plain = false,
            }
        }
        if is_plain {
            placements.entry(profile.clone()).or_default().push(mask);
            names.entry(profile).or_default().push(device.name.clone());
        }
    }
    if policy == Policy::ByName {
        for (profile, masks) in &mut placements {
            let mut named: Vec<_> = names[profile].iter().cloned().zip(masks.iter().copied()).collect();
            named.sort();
            *masks = named.into_iter().map(|(_, mask)| mask).collect();
        }
    }
    Ok(placements)
}

fn facts(model: &str) -> Result<Vec<GpuInstanceProfile>> {
    let mut profiles = Vec::new();
    let mut current = "";
    for line in FACTS.lines().filter(|line| !line.starts_with('#')) {
        if let Some(header) = line.strip_prefix("model ") {
            current = header.split(' ').next().unwrap_or_default();
        } else if current == model {
            profiles.push(profile(line).with_context(|| format!("line {line:?} of mig-profiles.txt"))?);
        }
    }
    ensure!(!profiles.is_empty(), "there is no model {model} in inventory/tests/data/mig-profiles.txt");
    Ok(profiles)
}

fn profile(line: &str) -> Option<GpuInstanceProfile> {
    let mut columns = line.split('|');
    let words: Vec<&str> = columns.next()?.split_whitespace().collect();
    let starts =
        columns.next()?.split_whitespace().map(|start| start.parse().ok()).collect::<Option<Vec<u32>>>()?;
    let number = |position: usize| words.get(position)?.parse::<u32>().ok();
    let size = number(11)?;
    Some(GpuInstanceProfile {
        name: (*words.first()?).to_owned(),
        id: number(1)?,
        compute_slices: number(2)?,
        max_instances: number(3)?,
        memory_bytes: u64::from(number(4)?) << 20,
        multiprocessors: number(5)?,
        copy_engines: number(6)?,
        decoders: number(7)?,
        encoders: number(8)?,
        jpeg_engines: number(9)?,
        ofa_engines: number(10)?,
        placements: starts.into_iter().map(|start| Placement { start, size }).collect(),
    })
}
