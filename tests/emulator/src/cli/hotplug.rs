//! Commands that change the composition of a running machine.

use anyhow::Context as _;
use clap::Args;

use super::{Directory, Target};
use crate::directory::{capabilities, driver_files, proc};
use crate::machine::identity;
use crate::state::{CardState, Meter, Mig, meter};

#[derive(Args)]
pub(super) struct Unplug {
    #[command(flatten)]
    directory: Directory,
    /// Index of the card.
    #[arg(long, value_name = "N")]
    card: u32,
}

pub(super) fn unplug(arguments: &Unplug) -> anyhow::Result<()> {
    let target = Target::open(&arguments.directory.directory)?;
    let index = target.card(arguments.card)? as usize;
    let card = &target.machine.cards[index];
    target.update(|state| {
        let state = &mut state.cards[index];
        if state.unplugged {
            anyhow::bail!("the slot of card {index} is empty already");
        }
        *state = CardState { unplugged: true, insertions: state.insertions, ..CardState::default() };
        capabilities::show(target.store.root(), card, &state.mig)?;
        Ok(proc::unplugged(target.store.root(), card)?)
    })
}

#[derive(Args)]
pub(super) struct Plug {
    #[command(flatten)]
    directory: Directory,
    /// Index that the card in this slot had.
    #[arg(long, value_name = "N")]
    card: u32,
    /// Makes it another card, with a UUID and serial number of its own.
    #[arg(long, value_name = "TEXT")]
    seed: Option<String>,
}

pub(super) fn plug(arguments: &Plug) -> anyhow::Result<()> {
    let mut target = Target::open(&arguments.directory.directory)?;
    let index = target.card(arguments.card)? as usize;
    if !target.store.state()?.cards.get(index).is_some_and(|card| card.unplugged) {
        anyhow::bail!("the slot of card {index} is not empty: take the card out first (gpu-emulator unplug)");
    }
    if let Some(seed) = &arguments.seed {
        let position = index.to_string();
        let words = [seed.as_str(), &target.machine.hardware, &position];
        let card = &mut target.machine.cards[index];
        card.uuid = format!("GPU-{}", identity::uuid(&words));
        card.serial = identity::serial(&words);
        target.store.replace_machine(&target.machine)?;
    }
    let (root, card) = (target.store.root(), &target.machine.cards[index]);
    proc::plugged(root, card, &target.machine.driver.version)?;
    target.update(|state| {
        let state = &mut state.cards[index];
        let insertions = state.insertions + 1;
        *state = CardState { insertions, meter: Meter::starting(meter::now()), ..CardState::default() };
        Ok(capabilities::show(root, card, &Mig::default())?)
    })
}

#[derive(Args)]
pub(super) struct DriverVersion {
    #[command(flatten)]
    directory: Directory,
    /// Such as 580.105.08.
    #[arg(long, value_name = "VERSION")]
    version: String,
}

pub(super) fn driver(arguments: &DriverVersion) -> anyhow::Result<()> {
    let mut target = Target::open(&arguments.directory.directory)?;
    if target.machine.driver.version == arguments.version {
        anyhow::bail!("version {} is installed already", arguments.version);
    }
    target.machine.driver.version.clone_from(&arguments.version);
    let programs = std::env::current_exe().context("where this program lies")?;
    let programs = programs.parent().context("this program lies nowhere")?;
    driver_files::library(target.store.root(), &arguments.version, programs)?;
    target.store.replace_machine(&target.machine)?;
    proc::driver(target.store.root(), &target.machine)?;
    target.update(|state| {
        state.driver_installations += 1;
        Ok(())
    })
}
