//! `kubectl gpu`: dry runs and explanations of allocations, tests of CEL selectors, the state of GpuPools and GpuQuotas, the connections of
//! cards, simulations of a fleet, advice on smaller devices and on moves, Kueue in front, migration from other drivers, and batch jobs in Slurm's words.
//!
//! Exit codes: 0 success (fits, matches, healthy), 1 failure, 2 an error; of `run` that of the job. See `docs/kubectl-gpu.md`.
#![forbid(unsafe_code)]

mod advise;
mod api_server;
mod arguments;
mod commands;
mod defaults;
mod defrag;
mod devices;
mod doctor;
mod driver_name;
mod explain;
mod extended_resource;
mod files;
mod foreign;
mod get;
mod hints;
mod idle;
mod labels;
mod lines;
mod managed;
mod migrate;
mod output;
mod pools;
mod quantities;
mod quotas;
mod reports;
mod share_ids;
mod source;
mod status;
mod subject;
mod top;
mod topology;
mod unasked;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::output::Verdict;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Command::Allocate(command) => commands::allocate::run(command),
        Command::Explain(command) => commands::explain::run(command),
        Command::Cel(command) => commands::cel::run(command),
        Command::Pools(command) => commands::pools::run(command),
        Command::Quota(command) => commands::quota::run(command),
        Command::Report(command) => commands::report::run(command),
        Command::Topology(command) => commands::topology::run(command),
        Command::Top(command) => commands::top::run(command),
        Command::Advise(command) => commands::advise::run(command),
        Command::Defrag(command) => commands::defrag::run(command),
        Command::Queue(command) => commands::queue::run(command),
        Command::Fleet(command) => commands::fleet::run(command),
        Command::Doctor(command) => commands::doctor::run(command),
        Command::Simulate(command) => commands::simulate::run(command),
        Command::Get(command) => commands::get::run(command),
        Command::Kueue(command) => commands::kueue::run(command),
        Command::Migrate(command) => commands::migrate::run(command),
        Command::Ungate(command) => commands::ungate::run(command),
        Command::Resume(command) => commands::resume::run(command),
        Command::Run(command) => commands::run::run(command),
        Command::Cancel(command) => commands::cancel::run(command),
    };
    match result {
        Ok(Verdict::Yes) => ExitCode::SUCCESS,
        Ok(Verdict::No) => ExitCode::from(1),
        Ok(Verdict::Code(code)) => ExitCode::from(code),
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::from(2)
        }
    }
}
