//! Machines with one model of card, from the data of the inventory's own tests.

use anyhow::{Context as _, Result, bail};
use tessera_api::offer::PlacementOrder;
use tessera_api::{DEFAULT_DRIVER_NAME, PciBusId};
use tessera_inventory::machine::{Card, GpuInstanceProfile, Mig, Placement};
use tessera_inventory::{Machine, Pool, PoolOptions};

const PROFILES: &str = include_str!("../../../../crates/base/inventory/tests/data/mig-profiles.txt");

/// A model of card.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its name in the data.
    pub name: &'static str,
    profiles: Vec<GpuInstanceProfile>,
}

impl Model {
    /// All models with known profiles.
    ///
    /// # Errors
    /// When the data does not have the format described by its head.
    pub fn all() -> Result<Vec<Self>> {
        let mut models: Vec<Self> = Vec::new();
        for line in PROFILES.lines().filter(|line| !line.starts_with('#')) {
            if let Some(rest) = line.strip_prefix("model ") {
                let name = rest.split(' ').next().unwrap_or(rest);
                models.push(Self { name, profiles: Vec::new() });
                continue;
            }
            let model = models.last_mut().context("profiles begin with a model")?;
            model.profiles.push(profile(line).with_context(|| format!("profile {line:?}"))?);
        }
        Ok(models)
    }

    /// The model with this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str) -> Result<Self> {
        let models = Self::all()?;
        let names: Vec<&str> = models.iter().map(|model| model.name).collect();
        let known = names.join(", ");
        models
            .into_iter()
            .find(|model| model.name == name)
            .with_context(|| format!("there is no model {name}; there are {known}"))
    }

    /// A machine with this many of these cards, all in MIG mode, without further known facts.
    ///
    /// # Errors
    /// There are more cards than addresses.
    pub fn machine(&self, cards: usize) -> Result<Machine> {
        let mig = Mig { mode: true, profiles: self.profiles.clone(), ..Mig::default() };
        let card = |position: usize| -> Result<Card> {
            let address = PciBusId::new(0, u8::try_from(position + 1)?, 0, 0)?;
            Ok(Card { mig_capable: Some(true), mig: Some(mig.clone()), ..Card::new(address) })
        };
        Ok(Machine { cards: (0..cards).map(card).collect::<Result<_>>()?, ..Machine::default() })
    }

    /// The slices of a node with this many of these cards.
    ///
    /// # Errors
    /// When something is left out, or there are more cards than addresses.
    pub fn pool(&self, cards: usize, order: PlacementOrder) -> Result<Pool> {
        Self::publish(&self.machine(cards)?, order).with_context(|| self.name)
    }

    /// The slices of a machine.
    ///
    /// # Errors
    /// When something is left out.
    pub fn publish(machine: &Machine, order: PlacementOrder) -> Result<Pool> {
        let mut options = PoolOptions::new(DEFAULT_DRIVER_NAME);
        let partitioning = &mut options.offers.others_mut().partitioning;
        partitioning.placement_order = order;
        let profiles = machine.cards.iter().flat_map(|card| &card.mig).flat_map(|mig| &mig.profiles);
        partitioning.profiles = Some(profiles.map(|profile| profile.name.clone()).collect());
        let pool = Pool::new(machine, &options);
        if let [warning, ..] = pool.warnings.as_slice() {
            bail!("{warning}");
        }
        Ok(pool)
    }
}

fn profile(line: &'static str) -> Result<GpuInstanceProfile> {
    let mut columns = line.split('|');
    let mut words = columns.next().unwrap_or_default().split_whitespace();
    let name = words.next().context("no name")?.to_owned();
    let numbers: Vec<u32> = words.map(str::parse).collect::<Result<_, _>>()?;
    let [id, compute_slices, max_instances, memory, multiprocessors, copy, dec, enc, jpeg, ofa, size] =
        numbers[..]
    else {
        bail!("{} numbers instead of 11", numbers.len())
    };
    let starts = columns.next().context("no placements")?.split_whitespace();
    let placements =
        starts.map(|start| Ok(Placement { start: start.parse()?, size })).collect::<Result<_>>()?;
    Ok(GpuInstanceProfile {
        name,
        id,
        compute_slices,
        max_instances,
        memory_bytes: u64::from(memory) << 20,
        multiprocessors,
        copy_engines: copy,
        decoders: dec,
        encoders: enc,
        jpeg_engines: jpeg,
        ofa_engines: ofa,
        placements,
    })
}
