//! The program inside a test cluster's namespaces, started only by the harness. See `tessera_harness::host` for an
//! overview.

mod cgroups;
mod exec;
mod forward;
mod host;
mod init;
mod leftovers;
mod mounts;
mod network;
mod probe;
mod processes;
mod runc;
mod supervise;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;

fn main() -> ExitCode {
    let result = if runc::called_as_runc() { runc::main() } else { dispatch() };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cluster-host: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let role =
        arguments.next().context("this program is started by the test cluster's harness, not by hand")?;
    match role.as_str() {
        "supervise" => supervise::main(&configuration(arguments.next())?),
        "machine" => init::start_machine(&configuration(arguments.next())?),
        "init" => init::main(&configuration(arguments.next())?),
        "host" => host::main(configuration(arguments.next())?),
        "exec" => exec::main(arguments),
        "probe" => probe::main(arguments.next().as_deref().unwrap_or("/tmp")),
        other => bail!("unknown role {other:?}"),
    }
}

fn configuration<T: DeserializeOwned>(argument: Option<String>) -> Result<T> {
    let text = argument.context("the configuration is missing")?;
    serde_json::from_str(&text).context("the configuration cannot be read")
}
