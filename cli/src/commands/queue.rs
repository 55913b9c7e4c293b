//! `kubectl gpu queue`: pods waiting for cards, in order, with reasons.

use serde::Serialize;
use tessera_api::fleet_view::FleetView;

use crate::api_server::{FleetPort, block_on, connect};
use crate::arguments::QueueArguments;
use crate::commands::top::read;
use crate::output::{self, CommandError, Verdict, or_dash};

/// A pod by itself, or a gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Position in the queue, from 1; 0 if unknown, and for pods whose devices kube-scheduler allocates.
    pub place: u32,
    /// `namespace/name` of the pod or the gang.
    pub name: String,
    /// Its team; absent in no GpuQuota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// How many of its pods wait.
    pub pods: usize,
    /// Its priority.
    pub priority: i32,
    /// For how many seconds the first of its pods has existed.
    pub waits_seconds: u64,
    /// GpuPools whose nodes have matching devices, free or not.
    pub pools: Vec<String>,
    /// The reason for waiting.
    pub why: String,
}

/// Runs the command.
///
/// # Errors
/// The fleet cannot be asked for.
pub fn run(arguments: &QueueArguments) -> Result<Verdict, CommandError> {
    let view = match &arguments.file {
        Some(file) => read(file)?,
        None => block_on(async {
            let (client, _) = connect(&arguments.connection, None).await?;
            Ok::<_, CommandError>(FleetPort::find(client).await??.fleet().await?)
        })?,
    };
    let namespace = arguments.namespaces.only();
    let rows = rows(&view, namespace);
    match arguments.output {
        Some(format) => output::structured(format, &rows)?,
        None if rows.is_empty() => {
            output::print(&format!("no pod waits{}\n", output::there(None, namespace)))?;
        }
        None => output::print(&table(&rows, !view.teams.is_empty()))?,
    }
    Ok(Verdict::Yes)
}

/// Pods and gangs in queue order, followed by pods outside our queues. A gang has the first reason found among its pods.
fn rows(view: &FleetView, namespace: Option<&str>) -> Vec<Row> {
    let mut waiting: Vec<_> = view
        .waiting
        .iter()
        .filter(|pod| namespace.is_none_or(|namespace| pod.namespace == namespace))
        .collect();
    waiting.sort_by_key(|pod| (pod.place == 0, pod.place, &pod.namespace, &pod.name));
    let teams = view.teams_of_namespaces();
    let mut rows: Vec<Row> = Vec::new();
    for pod in waiting {
        let name = format!("{}/{}", pod.namespace, pod.gang.as_ref().unwrap_or(&pod.name));
        let waits_seconds = if pod.since == 0 { 0 } else { view.at.saturating_sub(pod.since) };
        match rows.last_mut().filter(|row| row.place == pod.place && row.name == name && pod.gang.is_some()) {
            Some(row) => {
                row.pods += 1;
                row.waits_seconds = row.waits_seconds.max(waits_seconds);
                if row.why.is_empty() {
                    row.why.clone_from(&pod.why);
                }
                if row.pools.is_empty() {
                    row.pools.clone_from(&pod.pools);
                }
            }
            None => rows.push(Row {
                place: pod.place,
                name,
                team: teams.get(pod.namespace.as_str()).map(ToString::to_string),
                pods: 1,
                priority: pod.priority,
                waits_seconds,
                pools: pod.pools.clone(),
                why: pod.why.clone(),
            }),
        }
    }
    rows
}

fn table(rows: &[Row], has_teams: bool) -> String {
    let mut header = vec!["PLACE", "NAME", "PODS", "PRIORITY", "POOLS", "WAITS", "WHY"];
    if has_teams {
        header.insert(2, "TEAM");
    }
    let cells = rows.iter().map(|row| {
        let place = if row.place == 0 { "-".to_owned() } else { row.place.to_string() };
        let why = if row.why.is_empty() { "not considered yet" } else { without_preemption(&row.why) };
        let mut cells = vec![
            place,
            row.name.clone(),
            row.pods.to_string(),
            row.priority.to_string(),
            if row.pools.is_empty() { "-".to_owned() } else { row.pools.join(",") },
            time(row.waits_seconds),
            why.to_owned(),
        ];
        if has_teams {
            cells.insert(2, or_dash(row.team.as_ref()));
        }
        cells
    });
    output::table(&header, cells)
}

/// kube-scheduler preempts nobody for devices, and says so on each node.
fn without_preemption(why: &str) -> &str {
    why.split_once(" preemption: ").map_or(why, |(why, _)| why)
}

/// `45s`, `12m`, `3h`, `2d`, in kubectl's notation.
pub fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use tessera_api::fleet_view::WaitingPod;

    use super::*;

    fn waiting(name: &str, gang: Option<&str>, place: u32) -> WaitingPod {
        WaitingPod {
            namespace: "team".to_owned(),
            name: name.to_owned(),
            since: 1_000,
            why: format!("{name} waits"),
            gang: gang.map(str::to_owned),
            place,
            ..WaitingPod::default()
        }
    }

    #[test]
    fn a_gang_has_one_row_and_the_first_comes_first() {
        let view = FleetView {
            at: 1_900,
            waiting: vec![
                waiting("native", None, 0),
                waiting("late", None, 2),
                waiting("train-0", Some("train"), 1),
                waiting("train-1", Some("train"), 1),
            ],
            ..FleetView::default()
        };
        let rows = rows(&view, None);
        let found: Vec<(&str, usize, &str)> =
            rows.iter().map(|row| (row.name.as_str(), row.pods, row.why.as_str())).collect();
        let ours = [("team/train", 2, "train-0 waits"), ("team/late", 1, "late waits")];
        assert_eq!(found[..2], ours);
        assert_eq!(found[2..], [("team/native", 1, "native waits")], "it has no place in this queue");
        assert!(table(&rows, false).contains("15m"));
        assert!(super::rows(&view, Some("other")).is_empty());
    }
}
