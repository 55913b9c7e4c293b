//! `mps-host`: selects the command to run.

use std::{ffi::OsString, process::ExitCode};

use tessera_mps_host::{command, launch, reaper, supervise};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let own = arguments.get(1..).unwrap_or_default();
    match own.first().and_then(|argument| argument.to_str()) {
        Some(supervise::SUBCOMMAND) => supervise::main(own.to_vec()),
        Some(launch::SUBCOMMAND) => launch::main(own.to_vec()),
        Some(name) if command::SUBCOMMANDS.contains(&name) => command::main(arguments),
        _ => reaper::main(own),
    }
}
