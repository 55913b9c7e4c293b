//! The memory of the controller's program on a large fleet.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::json;

use super::objects::Objects;
use super::process::Controller;
use super::stand_in::StandIn;

/// Pods that wait for a proposal.
const WAITING: usize = 100;

/// The longest wait for all proposals.
const PATIENCE: Duration = Duration::from_secs(900);

/// How long the program is left alone before its memory is read, so that it has told pools' status and Events.
const REST: Duration = Duration::from_secs(15);

/// What was measured.
#[derive(Serialize)]
pub struct Memory {
    /// Size of the fleet.
    pub nodes: usize,
    /// Devices that they publish.
    pub devices: usize,
    /// Pods with a card.
    pub running: usize,
    /// Pods that waited.
    pub waiting: usize,
    /// What the program read to know all that, in MiB of JSON.
    pub listed_mib: f64,
    /// From its start until each waiting pod had its proposal.
    pub all_proposed_s: f64,
    /// Processor time until then.
    pub processor_s: f64,
    /// Resident memory, at rest.
    pub resident_mib: f64,
    /// The most that was resident.
    pub most_resident_mib: f64,
}

/// Starts the controller against a stand-in with so many nodes.
///
/// # Errors
/// When it does not come so far.
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
    let controller = Controller::start(&program, &kubeconfig)?;
    let all = stand_in.lifted.wait_for(|lifted| *lifted >= WAITING);
    tokio::time::timeout(PATIENCE, all).await.context("not every pod got its proposal")??;
    let (all_proposed_s, processor_s) = (begun.elapsed().as_secs_f64(), controller.processor_ms()? / 1e3);
    tokio::time::sleep(REST).await;
    Ok(Memory {
        nodes,
        devices,
        running,
        waiting: WAITING,
        listed_mib: stand_in.listed_mib(),
        all_proposed_s,
        processor_s,
        resident_mib: controller.resident_mib()?,
        most_resident_mib: controller.most_resident_mib()?,
    })
}
