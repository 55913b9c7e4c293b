//! The memory of the controller's program on a large fleet.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::json;

use super::objects::Objects;
use super::process::Controller;
use super::stand_in::StandIn;
use crate::http::{self, Scrapes};

/// Pods waiting for a proposal.
const WAITING: usize = 100;

/// The longest wait for all proposals.
const PATIENCE: Duration = Duration::from_secs(900);

/// How long the program is left alone before its memory is read, so that pools' status and Events are written.
const REST: Duration = Duration::from_secs(15);

/// How long the program is watched at rest: several rounds of requests to all plugins, and a minute's point of the history.
const WATCH: Duration = Duration::from_secs(75);

/// The measurements.
#[derive(Serialize)]
pub struct Memory {
    /// Size of the fleet.
    pub nodes: usize,
    /// Devices published by the nodes.
    pub devices: usize,
    /// Pods with a card.
    pub running: usize,
    /// Number of waiting pods.
    pub waiting: usize,
    /// The program's initial reads, in MiB of JSON.
    pub listed_mib: f64,
    /// From its start until each waiting pod had its proposal.
    pub all_proposed_s: f64,
    /// Processor time until then.
    pub processor_s: f64,
    /// Resident memory, at rest.
    pub resident_mib: f64,
    /// Processor time at rest, as a share of a core, while all plugins are asked every 15 s.
    pub at_rest: f64,
    /// Resident memory after the observation at rest.
    pub resident_told_mib: f64,
    /// Answers at `/metrics`.
    pub metrics: Scrapes,
    /// The fleet page's: as HTML, and as JSON. Within some seconds the same view of the fleet is served again.
    pub page: Scrapes,
    /// See [`Memory::page`].
    pub json: Scrapes,
    /// The longest wait of decisions for a view of the fleet, at a time: an upper bound, by the metric's buckets.
    pub view_step_ms: f64,
    /// Peak of resident memory.
    pub most_resident_mib: f64,
}

/// Starts the controller against a stand-in with this many nodes.
///
/// # Errors
/// When the controller does not get this far.
pub async fn measure(nodes: usize, unoptimised: bool) -> Result<Memory> {
    let program = Controller::build(unoptimised)?;
    let objects = Objects::new(nodes, WAITING)?;
    let (devices, running) = (objects.devices(), objects.running());
    let mut stand_in = StandIn::start(objects).await?;
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    let server = format!("http://{}", stand_in.address);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": server } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "users": [{ "name": "u", "user": {} }],
    });
    std::fs::write(&kubeconfig, config.to_string())?;
    eprintln!("the controller reads {nodes} nodes with {devices} devices");
    let begun = Instant::now();
    let addresses = [free_address()?, free_address()?];
    let controller = Controller::start(&program, &kubeconfig, [&addresses[0], &addresses[1]])?;
    let all = stand_in.lifted.wait_for(|lifted| *lifted >= WAITING);
    tokio::time::timeout(PATIENCE, all).await.context("not every pod got its proposal")??;
    let (all_proposed_s, processor_s) = (begun.elapsed().as_secs_f64(), controller.processor_ms()? / 1e3);
    tokio::time::sleep(REST).await;
    let resident_mib = controller.resident_mib()?;
    let before = controller.processor_ms()?;
    tokio::time::sleep(WATCH).await;
    let at_rest = (controller.processor_ms()? - before) / 1e3 / WATCH.as_secs_f64();
    let resident_told_mib = controller.resident_mib()?;
    let page = http::scrapes(&addresses[1], "/").await?;
    let json = http::scrapes(&addresses[1], tessera_api::fleet_view::PATH).await?;
    let metrics = http::scrapes(&addresses[0], "/metrics").await?;
    let text = http::get(&addresses[0], "/metrics").await?;
    Ok(Memory {
        nodes,
        devices,
        running,
        waiting: WAITING,
        listed_mib: stand_in.listed_mib(),
        all_proposed_s,
        processor_s,
        resident_mib,
        at_rest,
        resident_told_mib,
        metrics,
        page,
        json,
        view_step_ms: longest(&text, "tessera_controller_fleet_view_step_seconds").context("no views")? * 1e3,
        most_resident_mib: controller.most_resident_mib()?,
    })
}

/// An address of the loopback with a free port.
fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// The upper bound of a histogram's first bucket with all observations.
fn longest(text: &str, name: &str) -> Option<f64> {
    let value = |line: &str| line.rsplit_once(' ')?.1.parse::<f64>().ok();
    let count = text.lines().find(|line| line.starts_with(&format!("{name}_count"))).and_then(value)?;
    let mut buckets = text.lines().filter(|line| line.starts_with(&format!("{name}_bucket")));
    let full = buckets.find(|line| value(line) == Some(count))?;
    full.split("le=\"").nth(1)?.split('"').next()?.parse().ok()
}
