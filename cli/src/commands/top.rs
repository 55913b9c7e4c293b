//! `kubectl gpu top`: allocation beside usage.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use tessera_api::fleet_view::{FleetView, cards, memory};

use crate::api_server::{FleetPort, block_on, connect};
use crate::arguments::{Rows, TopArguments};
use crate::commands::queue::time;
use crate::idle;
use crate::output::{self, CommandError, Verdict, or_dash, warn};
use crate::top::{Row, rows};

/// Refresh interval at a terminal; the controller's own answer is as old.
const EVERY: Duration = Duration::from_secs(5);

/// Clears the terminal and goes to its first line (ECMA-48: CUP, ED).
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Runs the command.
///
/// # Errors
/// The fleet cannot be asked for, or there is no such node.
pub fn run(arguments: &TopArguments) -> Result<Verdict, CommandError> {
    if let Some(file) = &arguments.file {
        return show(arguments, &read(file)?);
    }
    block_on(async {
        let (client, _) = connect(&arguments.connection, None).await?;
        let mut fleet = FleetPort::find(client.clone()).await??;
        let is_live = !arguments.once && arguments.output.is_none() && std::io::stdout().is_terminal();
        if !is_live {
            return show(arguments, &fleet.fleet().await?);
        }
        loop {
            match fleet.fleet().await {
                Ok(view) => {
                    output::print(CLEAR)?;
                    show(arguments, &view)?;
                }
                // Another may lead by now.
                Err(error) => {
                    warn(&[error.to_string()]);
                    if let Ok(Ok(other)) = FleetPort::find(client.clone()).await {
                        fleet = other;
                    }
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    })
}

/// The fleet from a file.
///
/// # Errors
/// The file is unreadable, or not an answer of the fleet page.
pub fn read(file: &Path) -> Result<FleetView, CommandError> {
    let asked = |error: String| CommandError::Asked(format!("{}: {error}", file.display()));
    let text = std::fs::read(file).map_err(|error| asked(error.to_string()))?;
    serde_json::from_slice(&text)
        .map_err(|error| asked(format!("not a fleet.json from the fleet page: {error}")))
}

fn show(arguments: &TopArguments, view: &FleetView) -> Result<Verdict, CommandError> {
    if let Some(node) = &arguments.node
        && !view.nodes.iter().any(|known| known.name == *node)
    {
        return Err(CommandError::Asked(format!(
            "no cards on node {node}; `kubectl gpu top nodes` lists the nodes with cards"
        )));
    }
    let (node, namespace) = (arguments.node.as_deref(), arguments.namespaces.only());
    let there = output::there(node, namespace);
    if arguments.idle {
        let rows = idle::rows(view, node, namespace);
        match arguments.output {
            Some(format) => output::structured(format, &rows)?,
            None if rows.is_empty() => {
                output::print(&format!("no claim is idle{there}, where GpuPools ask (spec.idle)\n"))?;
            }
            None => output::print(&idle_table(&rows, view.currency.as_deref()))?,
        }
        return Ok(if view.nodes.is_empty() { Verdict::No } else { Verdict::Yes });
    }
    let rows = rows(view, arguments.rows, node, namespace, arguments.sort_by);
    match arguments.output {
        Some(format) => output::structured(format, &rows)?,
        None if view.nodes.is_empty() => output::print("no node has published cards\n")?,
        None if rows.is_empty() => output::print(&format!("no claim holds a card{there}\n"))?,
        None => output::print(&table(arguments.rows, &rows, !view.teams.is_empty()))?,
    }
    Ok(if view.nodes.is_empty() { Verdict::No } else { Verdict::Yes })
}

fn table(kind: Rows, rows: &[Row], has_teams: bool) -> String {
    let header: &[&str] = match kind {
        Rows::Nodes => &["NODE", "CARDS", "ALLOCATED", "BUSY", "IDLE", "MEMORY", "POWER", "TROUBLE"],
        Rows::Cards => &[
            "NODE",
            "CARD",
            "PRODUCT",
            "POOL",
            "ALLOCATED",
            "BUSY",
            "MEMORY",
            "POWER",
            "TEMPERATURE",
            "TROUBLE",
        ],
        Rows::Pods => &["POD", "TEAM", "NODE", "ALLOCATED", "BUSY", "IDLE", "MEMORY"],
        Rows::Namespaces => &["NAMESPACE", "TEAM", "PODS", "ALLOCATED", "BUSY", "IDLE", "MEMORY"],
    };
    let header: Vec<&str> = header.iter().copied().filter(|column| has_teams || *column != "TEAM").collect();
    let cell = |row: &Row, column: &str| match column {
        "NODE" => row.node.clone().unwrap_or_else(|| row.name.clone()),
        "CARD" | "POD" | "NAMESPACE" => row.name.clone(),
        "TEAM" => or_dash(row.team.as_ref()),
        "PRODUCT" => row.product.clone().unwrap_or_default(),
        "POOL" => row.pool.clone().unwrap_or_else(|| "-".to_owned()),
        "CARDS" | "PODS" => row.count.unwrap_or_default().to_string(),
        "ALLOCATED" => cards(row.allocated),
        "BUSY" => row.busy.map_or("-".to_owned(), cards),
        "IDLE" => row.idle.map_or("-".to_owned(), cards),
        "MEMORY" => memory(row.memory_used_mib, row.memory_mib),
        "POWER" => number(row.power_watts, " W"),
        "TEMPERATURE" => number(row.temperature_celsius, " °C"),
        _ => row.trouble.clone().unwrap_or_default(),
    };
    output::table(&header, rows.iter().map(|row| header.iter().map(|column| cell(row, column)).collect()))
}

fn idle_table(rows: &[idle::Row], currency: Option<&str>) -> String {
    let mut header = vec!["POD", "NODE", "DEVICES", "CARDS", "UNUSED", "MEMORY"];
    let currency = currency.filter(|_| rows.iter().any(|row| row.cost.is_some()));
    header.extend(currency.map(|_| "COST"));
    let cells = rows.iter().map(|row| {
        let unused = time(row.idle_seconds);
        let mut cells = vec![
            row.name.clone(),
            row.node.clone(),
            row.devices.join(","),
            cards(row.allocated),
            if row.not_started { format!("{unused}, not started") } else { unused },
            memory(row.memory_used_mib, None),
        ];
        let cost = |currency| row.cost.map_or("-".to_owned(), |cost| format!("{currency} {cost:.2}"));
        cells.extend(currency.map(cost));
        cells
    });
    output::table(&header, cells)
}

fn number(value: Option<f64>, unit: &str) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.0}{unit}"))
}
