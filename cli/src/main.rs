//! `kubectl gpu`: what kube-scheduler would allocate and why, which devices a CEL selector matches, what GpuPools have,
//! how cards are connected, what the fleet does, what claims could do with less, and what another driver's settings are here.
//!
//! Exit codes: 0 it fits (or matches, or is well), 1 it does not, 2 an error. See `docs/kubectl-gpu.md`.
#![forbid(unsafe_code)]

mod advise;
mod api_server;
mod arguments;
mod commands;
mod defaults;
mod devices;
mod doctor;
mod driver_name;
mod explain;
mod extended_resource;
mod files;
mod foreign;
mod get;
mod hints;
mod lines;
mod managed;
mod migrate;
mod output;
mod pools;
mod quantities;
mod reports;
mod share_ids;
mod source;
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
        Command::Topology(command) => commands::topology::run(command),
        Command::Top(command) => commands::top::run(command),
        Command::Advise(command) => commands::advise::run(command),
        Command::Queue(command) => commands::queue::run(command),
        Command::Fleet(command) => commands::fleet::run(command),
        Command::Doctor(command) => commands::doctor::run(command),
        Command::Simulate(command) => commands::simulate::run(command),
        Command::Get(command) => commands::get::run(command),
        Command::Migrate(command) => commands::migrate::run(command),
        Command::Ungate(command) => commands::ungate::run(command),
    };
    match result {
        Ok(Verdict::Yes) => ExitCode::SUCCESS,
        Ok(Verdict::No) => ExitCode::from(1),
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::from(2)
        }
    }
}
