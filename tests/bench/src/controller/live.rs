//! Pods on a real control plane, some of them handled by the controller, beside others left to kube-scheduler.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tessera_harness::{Cluster, ClusterOptions};

use super::gangs::{self, Gangs};
use super::pods::{self, PodKind, Started};
use super::process::Controller;
use super::writes::{Audit, Writes};
use super::{ControllerArguments, fleet};
use crate::quantiles::Quantiles;

/// On the real control plane.
#[derive(Serialize)]
pub struct Live {
    /// Nodes with 8 cards.
    pub nodes: usize,
    /// Of kube-scheduler and kube-controller-manager.
    pub client_limits: String,
    /// By kind of pod; the last is left to kube-scheduler.
    pub pods: Vec<Pods>,
    /// Pods with a common start, beside as many left to kube-scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gangs: Option<Gangs>,
    /// Processor time of the controller, for each pod not left to kube-scheduler.
    pub processor_ms_per_pod: f64,
    /// Of the controller.
    pub resident_mib: f64,
}

/// Pods of one kind.
#[derive(Serialize)]
pub struct Pods {
    /// Its name.
    pub kind: &'static str,
    /// From the pod's creation to the removal of our gate, its only one, for gated pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ungated: Option<Quantiles>,
    /// From the pod's creation to its binding.
    pub bound: Quantiles,
    /// The controller's writes for a pod.
    pub writes: Writes,
}

/// Queries a second, and at once, of kube-scheduler and kube-controller-manager: their defaults of 50 and 20 would
/// dominate the measurement.
const QPS: [&str; 2] = ["--kube-api-qps=1000", "--kube-api-burst=2000"];

/// Pods of each kind started before the measurement: they wait until the controller is in sync.
const WARM: usize = 5;

/// Until a new leader has listed all claims and written its epoch on them.
const SETTLED: Duration = Duration::from_secs(10);

/// Starts pods and measures.
///
/// # Errors
/// When a pod is not bound, or something else does not work.
pub async fn measure(arguments: &ControllerArguments) -> Result<Live> {
    let program = Controller::build(arguments.unoptimised)?;
    let kinds: &[PodKind] = if arguments.managed { &pods::MANAGED } else { &pods::STEERED };
    let audit = Audit::prepare()?;
    let mut options = ClusterOptions::scheduler_tier(0);
    options.extra.scheduler = QPS.map(str::to_owned).to_vec();
    options.extra.controller_manager = QPS.map(str::to_owned).to_vec();
    options.extra.api_server = audit.flags();
    let cluster = Cluster::start(options).await?;
    eprintln!("publishing {} nodes with 8 cards each", arguments.nodes);
    fleet::publish(
        &cluster,
        arguments.nodes,
        if arguments.managed { &fleet::MANAGED } else { &fleet::STEERED },
    )
    .await?;
    let controller = Controller::start(&program, &audit.kubeconfig(&cluster).await?, ["127.0.0.1:0"; 2])?;
    let leads_since = Instant::now();
    let pause = Duration::from_millis(arguments.pause);
    pods::start(&cluster, "warm", kinds, WARM, pause).await?;
    if arguments.managed {
        eprintln!("letting the leader settle: {} s", SETTLED.as_secs());
        tokio::time::sleep_until((leads_since + SETTLED).into()).await;
    }
    let gangs = if arguments.managed && arguments.gangs > 0 {
        Some(gangs::measure(&cluster, arguments.gangs).await?)
    } else {
        None
    };
    let before = controller.processor_ms()?;
    let started = pods::start(&cluster, "measured", kinds, arguments.pods, pause).await?;
    let processor = controller.processor_ms()? - before;
    let resident_mib = controller.resident_mib()?;
    // Events are sent behind, ten a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(controller);
    cluster.shutdown().await?;
    let names: Vec<&str> = started.iter().map(|pod| pod.name.as_str()).collect();
    let mut writes = audit.writes(&names)?;
    let of_kind = |kind: &PodKind, writes: &mut BTreeMap<String, Writes>| {
        let started: Vec<&Started> = started.iter().filter(|pod| pod.kind == kind.name).collect();
        let ungated: Vec<Duration> = started.iter().filter_map(|pod| pod.ungated).collect();
        let of_pods = started.iter().filter_map(|pod| writes.remove(&pod.name)).collect();
        Pods {
            kind: kind.name,
            ungated: kind.is_gated.then(|| Quantiles::of(ungated)),
            bound: Quantiles::of(started.iter().map(|pod| pod.bound).collect()),
            writes: Writes::mean(of_pods),
        }
    };
    let pods: Vec<Pods> = kinds.iter().map(|kind| of_kind(kind, &mut writes)).collect();
    Ok(Live {
        nodes: arguments.nodes,
        client_limits: QPS.join(" "),
        pods,
        gangs,
        processor_ms_per_pod: processor / (arguments.pods * (kinds.len() - 1)) as f64,
        resident_mib,
    })
}
