//! The command line of the stub `nvidia-smi`: the parts of the real one used most by scripts and people.
//!
//! It has no knowledge of emulated machines: all output comes from `libnvidia-ml.so.1`, as in the real one.

mod card;
mod compute;
mod library;
mod memory;
mod mig;
mod mig_device;
mod query;
mod reset;
mod table;
mod topo;
mod xml;

use std::process::ExitCode;

use clap::Parser;

use self::card::Reading;
use self::library::{Library, SmiError};

/// Prints what the driver knows of the cards. A stub of NVIDIA's tool of that name.
#[derive(Parser)]
#[command(name = "nvidia-smi", disable_version_flag = true)]
struct Arguments {
    /// Prints the versions of what is installed, and asks no card.
    #[arg(long)]
    version: bool,
    /// Lists the cards, one a line.
    #[arg(short = 'L', long)]
    list_gpus: bool,
    /// Prints all that is known; needs --xml-format.
    #[arg(short, long, requires = "xml_format")]
    query: bool,
    /// With --query: as XML.
    #[arg(short, long)]
    xml_format: bool,
    /// Only this card: index, UUID or PCI bus id.
    #[arg(short, long, value_name = "CARD")]
    id: Option<String>,
    /// Prints these fields, such as index,name,uuid,memory.total.
    #[arg(long, value_name = "FIELDS", requires = "format")]
    query_gpu: Option<String>,
    /// With --query-gpu: csv, and noheader, nounits.
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Sets the compute mode: 0 or DEFAULT, 2 or PROHIBITED, 3 or EXCLUSIVE_PROCESS.
    #[arg(short, long, value_name = "MODE", value_parser = compute::parse_mode)]
    compute_mode: Option<u32>,
    /// Switches MIG mode (-mig): 0 or DISABLED, 1 or ENABLED.
    #[arg(long, value_name = "MODE", value_parser = parse_mig_mode)]
    multi_instance_gpu: Option<u32>,
    /// Resets the cards (of --id, else all): their partitions are gone, and a pending MIG mode is the mode.
    #[arg(short = 'r', long)]
    gpu_reset: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Shows and sets how cards are shared by time.
    ComputePolicy(compute::Policy),
    /// Shows and changes partitions.
    Mig(mig::Mig),
    /// Shows how cards are connected.
    Topo(topo::Topology),
}

/// Runs the command. Exit codes are those of the real one: the NVML error, if any.
pub fn main() -> ExitCode {
    crate::cli::end_with_the_pipe();
    match run(&Arguments::parse_from(std::env::args().map(mig::spell_out))) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn parse_mig_mode(text: &str) -> Result<u32, String> {
    match text.to_ascii_uppercase().as_str() {
        "0" | "DISABLED" => Ok(0),
        "1" | "ENABLED" => Ok(1),
        _ => Err("0 or DISABLED, 1 or ENABLED".to_owned()),
    }
}

fn run(arguments: &Arguments) -> Result<String, SmiError> {
    let library = Library::open()?;
    if arguments.version {
        return Ok(table::versions(&library));
    }
    if let Some(Command::ComputePolicy(policy)) = &arguments.command {
        return compute::policy(&library, policy);
    }
    if let Some(Command::Mig(arguments)) = &arguments.command {
        return mig::run(&library, arguments);
    }
    let readings = Reading::all(&library, arguments.id.as_deref())?;
    if let Some(Command::Topo(_)) = &arguments.command {
        return Ok(topo::print(&library, &readings));
    }
    if arguments.gpu_reset {
        drop(library);
        return reset::print(&readings);
    }
    if let Some(mode) = arguments.compute_mode {
        return compute::set_mode(&library, &readings, mode);
    }
    if let Some(mode) = arguments.multi_instance_gpu {
        return mig::set_mode(&library, &readings, mode);
    }
    if arguments.list_gpus {
        return Ok(table::list(&readings));
    }
    if let Some(fields) = &arguments.query_gpu {
        return query::print(&library, &readings, fields, arguments.format.as_deref().unwrap_or_default());
    }
    if arguments.query {
        return Ok(xml::print(&library, &readings));
    }
    Ok(table::print(&library, &readings))
}
