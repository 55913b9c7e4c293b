//! The time of kube-scheduler for pods on one cluster.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;
use tessera_harness::{Cluster, ClusterOptions, Component};

use super::fleet::{Fleet, Published};
use super::pods::{Asked, PATIENCE, Pods};
use super::{Kind, NativeArguments};
use crate::quantiles::Quantiles;

/// Queries a second, and at once, of kube-scheduler and kube-controller-manager: their defaults of 50 and 20 would
/// dominate the measurement.
const QPS: [&str; 2] = ["--kube-api-qps=1000", "--kube-api-burst=2000"];

/// Pods before the measurement: they wait until kube-scheduler is in sync.
const WARM: usize = 5;

/// How long a CPU profile is taken, in seconds.
const PROFILE: u64 = 20;

/// One cluster.
#[derive(Serialize)]
pub struct OnCluster {
    /// `gitVersion` of the API server.
    pub kubernetes: String,
    /// The machine of each node.
    pub hardware: String,
    /// Number of nodes.
    pub nodes: usize,
    /// The published devices of each node.
    pub published: Published,
    /// Slices of a node.
    pub slices: usize,
    /// Devices of a node.
    pub devices: usize,
    /// Bytes of a node's slices, as JSON.
    pub bytes: usize,
    /// Resident when everything has been measured, in MiB.
    pub scheduler_mib: f64,
    /// The same of etcd.
    pub etcd_mib: f64,
    /// The same of kube-apiserver.
    pub api_server_mib: f64,
    /// Measurements, in order.
    pub pods: Vec<OfPods>,
}

/// Pods of one kind.
#[derive(Clone, Serialize)]
pub struct OfPods {
    /// Percent of the fleet's cards held by others.
    pub full: usize,
    /// The request of each pod.
    pub asked: Asked,
    /// From the creation to the binding, one pod after the other.
    pub one_by_one: Quantiles,
    /// Ratio of the time to whole cards alone; `None` without such a measurement.
    pub one_by_one_ratio: Option<f64>,
    /// Pods created at once.
    pub at_once: usize,
    /// How many of them were bound before nobody waited any longer.
    pub bound: usize,
    /// How many were bound a second.
    pub per_second: f64,
    /// How many times as many as with whole cards alone.
    pub per_second_ratio: Option<f64>,
}

impl OfPods {
    /// Sets the ratios to whole cards alone.
    pub fn compare(&mut self, plain: &[OfPods]) {
        let same = |other: &&OfPods| other.full == self.full && other.asked == self.asked.compared_with();
        let Some(plain) = plain.iter().find(same) else { return };
        let of = |ours: f64, theirs: f64| (ours > 0.0 && theirs > 0.0).then(|| ours / theirs);
        self.one_by_one_ratio = of(self.one_by_one.p50_ms, plain.one_by_one.p50_ms);
        self.per_second_ratio = of(self.per_second, plain.per_second);
    }
}

/// Starts a cluster, publishes and measures.
pub async fn measure(arguments: &NativeArguments, kind: Kind<'_>) -> Result<OnCluster> {
    let Kind { kubernetes, hardware, nodes, published } = kind;
    let fleet = Fleet::new(hardware, nodes, published)?;
    let mut options = ClusterOptions { kubernetes, ..ClusterOptions::scheduler_tier(0) };
    options.extra.scheduler = QPS.map(str::to_owned).to_vec();
    options.extra.controller_manager = QPS.map(str::to_owned).to_vec();
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    if arguments.cpu_profiles.is_some() {
        options.extra.scheduler.push(format!("--secure-port={port}"));
        options.extra.scheduler.push("--bind-address=127.0.0.1".to_owned());
        options.extra.scheduler.push("--authorization-always-allow-paths=/debug/pprof/*".to_owned());
    }
    let cluster = Cluster::start(options).await?;
    let version = cluster.client().await?.apiserver_version().await?.git_version;
    let title = format!("{version}, {nodes} {hardware}, {}", published.name());
    eprintln!(
        "{title}: {} devices in {} slices, {} bytes a node",
        fleet.devices.len(),
        fleet.slices,
        fleet.bytes
    );
    fleet.publish(&cluster).await?;
    let (pods, offered) = Pods::new(&cluster, &fleet).await?;
    let mut of_pods = Vec::new();
    let mut held = 0;
    if !arguments.has_pods() {
        eprintln!("{title}: waiting until kube-scheduler has seen everything");
        pods.start(Asked::Card, WARM).await?;
        pods.remove().await?;
    }
    for full in arguments.full.iter().copied().filter(|_| arguments.has_pods()) {
        fleet.fill(&cluster, held, full).await?;
        held = full;
        pods.start(Asked::Card, WARM.min(fleet.free(full))).await?;
        pods.remove().await?;
        for asked in offered.iter().copied() {
            let title = format!("{title}, {full} % full, {}", asked.words());
            let at_once = arguments.at_once.min(asked.fit(fleet.free(full)));
            let measuring = of_kind(&pods, &title, asked, [arguments.pods, at_once]);
            let measured = match &arguments.cpu_profiles {
                Some(folder) => {
                    let file = folder.join(format!("{}.pprof", title.replace([',', ' ', '%'], "-")));
                    tokio::try_join!(measuring, profile(port, &file))?.0
                }
                None => measuring.await?,
            };
            of_pods.push(OfPods { full, ..measured });
        }
    }
    let processes = cluster.processes().await?;
    let mib = |component: Component| {
        let process = processes.iter().find(|(_, process)| process.name == component.name());
        process.and_then(|(_, process)| process.resident_kib).unwrap_or(0) as f64 / 1024.0
    };
    let measured = OnCluster {
        kubernetes: version,
        hardware: hardware.to_owned(),
        nodes,
        published,
        slices: fleet.slices,
        devices: fleet.devices.len(),
        bytes: fleet.bytes,
        scheduler_mib: mib(Component::Scheduler),
        etcd_mib: mib(Component::Etcd),
        api_server_mib: mib(Component::ApiServer),
        pods: of_pods,
    };
    cluster.shutdown().await?;
    Ok(measured)
}

/// So many pods one after the other, then so many at once.
async fn of_kind(pods: &Pods, title: &str, asked: Asked, [single, at_once]: [usize; 2]) -> Result<OfPods> {
    eprintln!("{title}: {single} pods one by one");
    let (begun, mut times) = (Instant::now(), Vec::new());
    for _ in 0..single.min(at_once) {
        times.extend(pods.start(asked, 1).await?.times);
        if begun.elapsed() > PATIENCE {
            break;
        }
    }
    pods.remove().await?;
    eprintln!("{title}: {at_once} pods at once");
    let all = pods.start(asked, at_once).await?;
    pods.remove().await?;
    Ok(OfPods {
        full: 0,
        asked,
        one_by_one: Quantiles::of(times),
        one_by_one_ratio: None,
        at_once,
        bound: all.times.len(),
        per_second: all.times.len() as f64 / all.took.as_secs_f64().max(0.001),
        per_second_ratio: None,
    })
}

/// Takes a CPU profile of kube-scheduler at work.
async fn profile(port: u16, file: &Path) -> Result<()> {
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse()?);
    // kube-scheduler signs its certificate itself.
    config.accept_invalid_certs = true;
    config.read_timeout = Some(Duration::from_secs(PROFILE * 2));
    let client = kube::Client::try_from(config)?;
    let request = http::Request::get(format!("/debug/pprof/profile?seconds={PROFILE}"))
        .body(kube::client::Body::empty())?;
    let answer = client.send(request).await?;
    anyhow::ensure!(answer.status().is_success(), "kube-scheduler's profile: {}", answer.status());
    let bytes = answer.into_body().collect_bytes().await?;
    std::fs::write(file, &bytes).with_context(|| format!("write {}", file.display()))
}
