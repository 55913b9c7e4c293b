//! `cargo xtask gpu-check`: compares our NVML crate's readings of this machine's cards with `nvidia-smi -q -x`.
//!
//! Read-only: nothing on the cards or in the driver is changed. With `--mps` a private MPS daemon is tried instead.

mod compare;
pub mod mps;
mod report;
mod smi;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tessera_api::PciBusId;
use tessera_nvml::{Library, Nvml};

use self::compare::{Comparison, Verdict};

/// Arguments of `cargo xtask gpu-check`.
#[derive(Args)]
#[command(
    after_help = "Reads only; changes nothing on the cards or in the driver. With --mps it starts an MPS daemon of its own, in a directory of
its own, and takes some GiB of one card's memory for some seconds.

Examples:
  cargo xtask gpu-check                   the cards of this machine
  cargo xtask gpu-check --json            one JSON object on standard output
  cargo xtask gpu-check --mps             limits of MPS on the first card
  cargo xtask gpu-check --driver-root DIR an emulated machine, made by gpu-emulator"
)]
pub struct GpuCheckArguments {
    /// Where the driver is installed.
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    driver_root: PathBuf,
    /// The nvidia-smi to compare with; without this, the one below the driver root, else the one in PATH.
    #[arg(long, value_name = "FILE")]
    nvidia_smi: Option<PathBuf>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Try instead whether MPS enforces its clients' limits.
    #[arg(long)]
    mps: bool,
    /// Index of the card to try MPS on, in the driver's order.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "mps")]
    card: usize,
    /// CUDA's library; without this, the one beside NVML's.
    #[arg(long, value_name = "FILE", requires = "mps")]
    libcuda: Option<PathBuf>,
}

/// Compares and prints the result. Fails when something differs.
///
/// # Errors
/// When there is no driver, no card or no usable `nvidia-smi` to compare with, or no MPS to try.
pub fn run(arguments: &GpuCheckArguments) -> Result<ExitCode> {
    let library = Library::open_below(&arguments.driver_root)
        .context("nothing to check: this needs a machine with an NVIDIA card and driver")?;
    if arguments.mps {
        return try_mps(&library, arguments);
    }
    let tool = match &arguments.nvidia_smi {
        Some(path) => path.clone(),
        None => smi::find(&arguments.driver_root)?,
    };
    let xml = smi::query(&tool, &library)?;
    let comparisons = compare_all(&library, &xml)?;
    if arguments.json {
        print(&report::json(&comparisons).to_string())?;
    } else {
        let title = format!("{} beside {}", library.path().display(), tool.display());
        print(&format!("{title}\n\n{}", report::tables(&comparisons)))?;
    }
    let different = comparisons.iter().any(|comparison| comparison.verdict == Verdict::Different);
    Ok(if different { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn try_mps(library: &Library, arguments: &GpuCheckArguments) -> Result<ExitCode> {
    let trials = mps::run(library, arguments)?;
    let text = if arguments.json {
        report::trials_json(&trials.0).to_string()
    } else {
        report::trials_table(&trials.0)
    };
    print(&text)?;
    let is_otherwise = trials.0.iter().any(|trial| trial.outcome == mps::Outcome::Otherwise);
    Ok(if is_otherwise { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints; a closed reader, such as `head`, is no error.
fn print(text: &str) -> Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("can't write the report")
        }
        _ => Ok(()),
    }
}

fn compare_all(library: &Library, xml: &str) -> Result<Vec<Comparison>> {
    let log = smi::Log::parse(xml)?;
    let mut comparisons = compare::machine(library, &log);
    let addresses = library.addresses().context("the driver does not say which cards there are")?;
    ensure!(!addresses.is_empty(), "the driver sees no card");
    let mut present: Vec<PciBusId> = Vec::new();
    for (index, address) in addresses.into_iter().enumerate() {
        match address {
            Ok(address) => present.push(address),
            Err(error) => comparisons.push(Comparison::unreadable(index, &error)),
        }
    }
    for (position, &address) in present.iter().enumerate() {
        comparisons.extend(compare::card(library, address, &log));
        comparisons.extend(compare::pairs(library, address, &present[position + 1..]));
    }
    comparisons.extend(compare::unseen(&present, &log));
    Ok(comparisons)
}

#[cfg(test)]
mod tests;
