//! `mps-host list`, `check` and `events`: show the MPS daemons of a node to people and scripts.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use serde::Serialize;

use super::client::{MpsHost, MpsHostError};
use super::directory::DEFAULT_DIRECTORY;
use super::protocol::{Daemon, DaemonClients, DaemonState};
use tessera_kube_util::arguments::absolute;

/// First arguments to select these commands.
pub const SUBCOMMANDS: [&str; 3] = ["list", "check", "events"];

/// How long daemons may take to report their clients.
const QUESTION: Duration = Duration::from_secs(10);

/// Shows the MPS daemons of this node's shared cards and partitions, and whether they are well.
///
/// Asks mps-host over its socket, as root. In a cluster, run it in mps-host's pod:
/// kubectl exec -n NAMESPACE POD -- mps-host list
#[derive(Debug, Parser)]
#[command(
    name = "mps-host",
    version,
    max_term_width = 100,
    after_help = "Examples:
  mps-host list                 # a table
  mps-host list -o json         # one JSON object
  mps-host check                # exit code 1, and why, unless all is well
  mps-host events               # what happens from now on, one JSON object a line"
)]
struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Where mps-host works.
    #[arg(
        long,
        global = true,
        env = "MPS_DIRECTORY",
        value_name = "DIRECTORY",
        default_value = DEFAULT_DIRECTORY,
        value_parser = absolute
    )]
    directory: PathBuf,
    /// How long to wait for mps-host, in seconds.
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 5)]
    timeout: u16,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Lists the daemons with their clients. Exit code 1 when mps-host does not answer.
    List {
        /// A table, or one JSON object with the fields `daemons` and `clients`.
        #[arg(long, short, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Says what is wrong: mps-host does not answer, a daemon does not run or does not answer. Exit code 1 then.
    Check,
    /// Prints events of the daemons from now on, until mps-host ends: exit code 1.
    Events,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// The output of `-o json`.
#[derive(Debug, Serialize)]
struct Listing {
    daemons: Vec<Daemon>,
    clients: Vec<DaemonClients>,
}

/// Runs a command. `arguments` are those after the program's name.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let arguments = Arguments::parse_from(arguments);
    let run = || -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run(&arguments))
    };
    run().unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

async fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let host = MpsHost::new(&arguments.directory);
    let patience = Duration::from_secs(arguments.timeout.into());
    match arguments.what {
        What::List { output } => {
            let listing = listing(&host, patience).await?;
            match output {
                Output::Table => print!("{}", table(&listing)),
                Output::Json => println!("{}", serde_json::to_string_pretty(&listing)?),
            }
        }
        What::Check => {
            let problems = problems(&listing(&host, patience).await?);
            if !problems.is_empty() {
                println!("{}", problems.join("\n"));
                return Ok(ExitCode::FAILURE);
            }
            println!("ok");
        }
        What::Events => {
            let mut events = host.events(patience).await?;
            while let Some(event) = events.next().await {
                println!("{}", serde_json::to_string(&event)?);
            }
            anyhow::bail!("mps-host has ended");
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn listing(host: &MpsHost, patience: Duration) -> anyhow::Result<Listing> {
    let daemons = host.list(patience).await?;
    let clients = match host.clients(QUESTION).await {
        // An older mps-host does not know the request.
        Err(MpsHostError::Refused { message, .. }) => {
            let error = |daemon: &Daemon| DaemonClients {
                device: daemon.device.clone(),
                clients: Vec::new(),
                error: Some(message.clone()),
            };
            daemons.iter().map(error).collect()
        }
        clients => clients?,
    };
    Ok(Listing { daemons, clients })
}

fn clients<'a>(listing: &'a Listing, daemon: &Daemon) -> Option<&'a DaemonClients> {
    listing.clients.iter().find(|clients| clients.device == daemon.device)
}

fn table(listing: &Listing) -> String {
    let mut rows =
        vec![["DEVICE", "CARD", "STATE", "CLIENTS", "MEMORY", "THREADS", "RESTARTS"].map(str::to_owned)];
    for daemon in &listing.daemons {
        let settings = daemon.settings;
        let clients = match clients(listing, daemon) {
            Some(DaemonClients { error: None, clients, .. }) => clients.len().to_string(),
            _ => "unknown".to_owned(),
        };
        rows.push([
            daemon.device.to_string(),
            daemon.card.to_string(),
            state(daemon).to_owned(),
            clients,
            settings.memory_limit_mib.map_or_else(|| "all".to_owned(), |limit| format!("{limit} MiB")),
            format!("{} %", settings.active_thread_percentage.unwrap_or(100)),
            daemon.restarts.to_string(),
        ]);
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let line = row.iter().zip(&widths).fold(String::new(), |mut line, (cell, width)| {
            // Writing to a string does not fail.
            let _ = write!(line, "{cell:<width$}   ");
            line
        });
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for problem in problems(listing) {
        let _ = writeln!(text, "{problem}");
    }
    text
}

/// All problems, one line each.
fn problems(listing: &Listing) -> Vec<String> {
    let mut problems = Vec::new();
    for daemon in &listing.daemons {
        let device = &daemon.device;
        match &daemon.state {
            DaemonState::Running | DaemonState::Stopping => {
                problems.extend(daemon.fault.as_ref().map(|fault| {
                    let left = &fault.clients;
                    format!("{device}: a program faulted; no other can use it before processes {left:?} have ended")
                }));
            }
            DaemonState::Starting => problems.push(format!("{device} is being started")),
            DaemonState::WaitingForClients { clients } => problems.push(format!(
                "{device}: its daemon died; it is started again when processes {clients:?} have ended"
            )),
            DaemonState::Failed { message } => problems.push(format!("{device} does not run: {message}")),
        }
        if let Some(error) = clients(listing, daemon).and_then(|clients| clients.error.as_ref()) {
            problems.push(format!("{device} does not say who its clients are: {error}"));
        }
    }
    problems
}

/// A daemon's state, as tables and metrics name it.
#[must_use]
pub const fn state(daemon: &Daemon) -> &'static str {
    match &daemon.state {
        DaemonState::Starting => "starting",
        DaemonState::Running if daemon.fault.is_some() => "fault",
        DaemonState::Running => "running",
        DaemonState::WaitingForClients { .. } => "waiting_for_clients",
        DaemonState::Failed { .. } => "failed",
        DaemonState::Stopping => "stopping",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::CommandFactory as _;
    use serde_json::json;

    use super::*;
    use crate::protocol::Fault;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_table_names_what_is_not_well() {
        let daemon = |uuid: &str, state: serde_json::Value| -> Daemon {
            serde_json::from_value(json!({
                "device": uuid, "card": "0000:3b:00.0", "settings": {"memoryLimitMib": 20480}, "state": state,
                "pid": 7, "serverPid": 8, "pipeDirectory": "/p", "shmDirectory": null, "logDirectory": "/l",
                "restarts": 2,
            }))
            .unwrap()
        };
        let one = "GPU-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4d";
        let other = "GPU-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4e";
        let clients = json!([
            {"device": one, "clients": [{"pid": 5}, {"pid": 6}]},
            {"device": other, "error": "it hangs"},
        ]);
        let third = "GPU-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4f";
        let faulted = daemon(third, json!("running"));
        let fault = Fault { id: "1".to_owned(), clients: vec![41, 42] };
        let faulted = Daemon { fault: Some(fault), ..faulted };
        let listing = Listing {
            daemons: vec![
                daemon(one, json!("running")),
                daemon(other, json!({"failed": {"message": "no card"}})),
                faulted,
            ],
            clients: serde_json::from_value(clients).unwrap(),
        };
        let text = table(&listing);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7, "{text}");
        assert!(lines[0].starts_with("DEVICE ") && lines[0].ends_with("RESTARTS"));
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(words, [one, "0000:3b:00.0", "running", "2", "20480", "MiB", "100", "%", "2"]);
        assert!(lines[2].contains("failed") && lines[2].contains("unknown"));
        assert!(lines[3].contains(" fault ") && lines[6].contains("[41, 42]"), "{text}");
        assert!(lines[4].contains("no card") && lines[5].contains("it hangs"));
    }
}
