//! `cargo xtask gpu-check --mps`: checks on this machine Tessera's assumption of MPS enforcing its clients' limits.
//!
//! A private daemon (pipe and log directories of its own, compute mode and all other settings untouched) serves
//! processes of this program as clients. Everything ends with the check, even after a failure.

pub mod client;
mod daemon;
mod limits;
mod partitions;

use anyhow::{Context, Result, bail, ensure};
use tessera_inventory::StaticPartitions;
use tessera_inventory::machine::Card;
use tessera_nvml::{CardReadings, ComputeMode, Library, Nvml};

use self::client::Starter;
use self::daemon::{Daemon, Programs};
use super::GpuCheckArguments;

/// A trial and its result.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    /// The attempt.
    pub what: String,
    /// Tessera's assumption.
    pub expected: String,
    /// The finding.
    pub found: String,
    /// The verdict.
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// As expected.
    Ok,
    /// Not as expected: Tessera's promise does not hold here.
    Otherwise,
    /// Not possible on this machine.
    NotTried,
}

/// Trials, in order.
#[derive(Debug, Default)]
pub(super) struct Trials(pub Vec<Trial>);

impl Trials {
    fn check(&mut self, what: &str, expected: impl Into<String>, found: impl Into<String>, is_ok: bool) {
        let outcome = if is_ok { Outcome::Ok } else { Outcome::Otherwise };
        self.0.push(Trial { what: what.into(), expected: expected.into(), found: found.into(), outcome });
    }

    fn not_tried(&mut self, what: &str, why: impl Into<String>) {
        let (found, outcome) = (why.into(), Outcome::NotTried);
        self.0.push(Trial { what: what.into(), expected: String::new(), found, outcome });
    }
}

/// Runs all trials on one card.
///
/// # Errors
/// When there is no card, driver or MPS to try, or the card is in use.
pub(super) fn run(library: &Library, arguments: &GpuCheckArguments) -> Result<Trials> {
    let card = choose(library, arguments.card)?;
    let programs = Programs::find(library, arguments)?;
    let starter = Starter { libcuda: programs.libcuda.clone() };
    let uuid = card.uuid.clone().context("the card's UUID can't be read")?;
    let mut trials = Trials::default();

    let daemon = Daemon::start(&programs, &uuid, &[])?;
    daemon.start_server()?;
    let all = limits::multiprocessors(&daemon, &starter, &mut trials)?;
    limits::memory(&daemon, &starter, &mut trials)?;
    limits::defaults(&daemon, &starter, all, &mut trials)?;
    read_only_pipe(&daemon, &starter, &mut trials)?;
    daemon.end()?;

    partitions::run(&programs, &starter, &card, &uuid, library, &mut trials)?;
    Ok(trials)
}

/// Containers cannot write into the daemon's directory, and can be its clients nevertheless.
fn read_only_pipe(daemon: &Daemon<'_>, starter: &Starter, trials: &mut Trials) -> Result<()> {
    const WHAT: &str = "a client to which the pipe directory is read-only";
    if !nix::unistd::geteuid().is_root() {
        trials.not_tried(WHAT, "a mount takes root");
        return Ok(());
    }
    let mut client = starter.locked_out(daemon)?;
    let is_client = daemon.clients()?.contains(&client.pid());
    let taken = client.refused().is_none() && client.allocate(1 << 20)?.is_none();
    let found = if is_client { client.told() } else { format!("no client of the server, {}", client.told()) };
    trials.check(WHAT, "a client of the daemon's server, which takes memory", found, is_client && taken);
    Ok(())
}

/// The card with this index, if a daemon can run there.
fn choose(library: &Library, index: usize) -> Result<CardReadings> {
    let addresses = library.addresses().context("the driver does not say which cards there are")?;
    let address = addresses.into_iter().nth(index).with_context(|| format!("there is no card {index}"))?;
    let card = library.card(address.context("the card can't be read")?).context("the card can't be read")?;
    if card.mig.as_ref().is_ok_and(|mode| mode.is_some_and(|mode| mode.current)) {
        bail!("card {index} is in MIG mode; name another one with --card");
    }
    let mode = card.compute_mode.as_ref().ok().copied().flatten();
    ensure!(
        mode.is_none_or(|mode| mode == ComputeMode::Default),
        "card {index} is in another compute mode than DEFAULT, and this check changes nothing: name another one with --card"
    );
    Ok(card)
}

/// The basis of the published policy of a card with static partitions.
fn published(card: &CardReadings, library: &Library) -> Result<StaticPartitions, String> {
    let mut facts = Card::new("0000:00:00.0".parse().map_err(|error| format!("{error}"))?);
    facts.compute_capability = card.compute_capability.as_ref().ok().copied().flatten();
    facts.cores = card.cores.as_ref().ok().copied().flatten();
    let version = library.cuda_version().ok();
    let version = version.map(|version| version.major * 1000 + version.minor * 10);
    StaticPartitions::of(&facts, version).map_err(|reason| reason.to_string())
}
