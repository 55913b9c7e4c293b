//! One instance of the plugin, from start to end.
//!
//! ```text
//! DriverKeeper ─> discovery ─> PoolFollower ─┬─> PoolMaker ─┬─> Publisher ─> API server
//!        │             │  ^                    │        ^     │
//!        │             v  │                    v        │     └─> health ──┐
//!        ├─> LayoutKeeper, ResetKeeper <───────┤ ───────┘                  │
//!        └───────────────> Preparer <──────────┘ <───── KubeletServer <────┘
//!                             │
//!                http: /metrics /usage /healthz /readyz
//! ```
//!
//! Everything starts at once: slices become visible after the time of the slowest part, not after the sum of all. Missing
//! dependencies on the node (driver, disk, API server, kubelet) are waited for and reported in the log and by
//! `/readyz`. A wrong command line ends the process with an error.
//!
//! Every part runs as a task. If a part ends by itself, for example by a panic, the process shuts down in order with
//! exit code 1: without one of its parts the plugin would look alive and do half its work. The kubelet restarts
//! the container, and the journal has all needed state. A panic in a single call of the kubelet, or in a single claim's work,
//! is an error of that call or claim only.

mod dump;
mod free_threads;
mod hardware_looks;
mod health_events;
mod health_report;
mod http;
mod let_go;
mod machine_events;
pub mod metrics;
mod node;
mod node_report;
mod other_owners;
mod pools;
mod published_metrics;
mod readiness;

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use tessera_dra_kubelet::{
    grpc_health::GrpcHealth, registration::RegistrationState, socket_paths::SocketPaths,
};
use tessera_kube_util::{
    client,
    events::{Events, NodeEvents},
    node_labels, server_version,
    signals::Signals,
    tasks::Tasks,
};
use tessera_publish::{PublishOptions, Publisher};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    card_history::CardHistory,
    discovery::{self, DiscoveryOptions, ResetCards, XidMemory},
    driver::DriverKeeper,
    gpu_pools::{PoolFollower, Reading},
    options::Options,
    prepare::DriverFilesState,
    usage::{IdleFollower, OveruseFollower, Teller, UsageSweep},
};
use dump::Dump;
use free_threads::FreeThreads;
use health_events::HealthEvents;
use let_go::LetGoFile;
use machine_events::MachineEvents;
use metrics::Metrics;
use node::NodePart;
use other_owners::OtherOwners;
use readiness::Readiness;

/// Runs an instance until SIGTERM or SIGINT; `started` is the start time of the process.
///
/// # Errors
/// If the options cannot work, or a part of the program ended by itself.
pub async fn run(options: Options, metrics: Metrics, started: Instant) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("cannot handle signals")?;
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(shutdown.clone());
    let starting = start(&options, &metrics, started, &tasks, &shutdown);
    let result = tokio::select! {
        result = starting => result,
        signal = signals.next() => {
            tracing::info!(signal, "ending before everything was started");
            Ok(())
        }
    };
    if result.is_ok() {
        tokio::select! {
            signal = signals.next() => tracing::info!(signal, timeout = ?options.shutdown_timeout, "ending"),
            () = shutdown.cancelled() => {}
        }
    }
    shutdown.cancel();
    tokio::select! {
        ended = tasks.ended() => result.and(ended.map_err(Into::into)),
        () = tokio::time::sleep(options.shutdown_timeout) => {
            tracing::warn!(running = tasks.running(), "not everything ended in time; the next instance takes over");
            result
        }
        signal = signals.next() => {
            tracing::warn!(signal, "second signal: ending at once");
            result
        }
    }
}

/// Starts all parts. Returns at once, without waiting for their dependencies.
async fn start(
    options: &Options,
    metrics: &Metrics,
    started: Instant,
    tasks: &Tasks,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let Options { driver_name, node_name, kubelet_directory, pod_uid, .. } = options;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        driver = driver_name,
        node = node_name,
        pod_uid = pod_uid.as_deref(),
        "kubelet plugin starting"
    );
    let sockets = SocketPaths::new(kubelet_directory, driver_name, pod_uid.as_deref())?;

    // Start the slowest part first.
    let keeper = DriverKeeper::new(options.installed(), options.proc_root.clone(), metrics.driver.clone());
    let (hardware, hardware_reason) = (keeper.driver(), keeper.reason());
    let (let_go, closer, reset_cards) = (keeper.let_go(), keeper.closer(), ResetCards::default());
    tasks.spawn("the driver keeper", keeper.run(shutdown.clone()));
    let (machine_sender, machines) = watch::channel(None);
    let (own_partitions_sender, own_partitions) = watch::channel(None);
    // Read once, a small file.
    let history = Arc::new(CardHistory::open(&options.plugin_directory()));
    let driver_files = watch::Sender::new(DriverFilesState::default());
    let discovery = DiscoveryOptions {
        driver_files: driver_files.subscribe(),
        history: Some(Arc::clone(&history)),
        memory: Some(options.plugin_directory().join("undivided-cards.json")),
        policy: options.health_policy.clone(),
        let_go: let_go.clone(),
        reset_cards: reset_cards.clone(),
        xid_memory: Some(XidMemory::new(&options.plugin_directory(), options.proc_root.clone())),
        ..DiscoveryOptions::new(options.sysfs_root.clone())
    };
    let (look_again, looks) = (discovery.look_again.clone(), discovery.looks.subscribe());
    tokio::spawn(hardware_looks::follow(looks.clone(), metrics.looks.clone()));
    tasks.spawn(
        "discovery",
        discovery::run(hardware.clone(), own_partitions, discovery, machine_sender, shutdown.clone()),
    );

    let http = http::Listeners::bind(options.http_address, options.probe_socket.as_deref()).await?;
    let client = client::connect(client::configuration(options.kubeconfig.as_deref()).await?)
        .context("cannot make a Kubernetes client")?;
    let events = Events::start(client.clone(), driver_name, node_name);
    let of_node = NodeEvents::new(events.clone(), node_name);

    let (labels_sender, labels) = watch::channel(None);
    tasks.spawn(
        "the node's labels",
        node_labels::follow(client.clone(), node_name.clone(), labels_sender, shutdown.clone()),
    );
    let (kubernetes_sender, kubernetes) = watch::channel(None);
    tasks.spawn(
        "the API server's version",
        server_version::follow(client.clone(), kubernetes_sender, shutdown.clone()),
    );
    let (resolution_sender, resolution) = watch::channel(None);
    let (reading_sender, reading) = watch::channel(Reading::default());
    let instance = pod_uid.clone().unwrap_or_else(|| std::process::id().to_string());
    let publisher = Publisher::new(
        client.clone(),
        PublishOptions {
            driver_name: driver_name.clone(),
            node_name: node_name.clone(),
            lock_directory: options.plugin_directory(),
            instance,
        },
    );
    let follower = PoolFollower {
        driver_name: driver_name.clone(),
        client: client.clone(),
        file: options.plugin_directory().join("gpu-pools.json"),
        has_layouts: options.mig_layout_file.is_some(),
        handover: options.managed_handover,
        labels: labels.clone(),
        kubernetes,
        machines: machines.clone(),
        resolution: resolution_sender,
        reading: reading_sender,
        published: publisher.status(),
    };
    tasks.spawn("the GPU pools", follower.run(shutdown.clone()));
    let (published, published_before) = (publisher.status(), publisher.published_before());
    let (pool_sender, pools) = watch::channel(None);
    tasks.spawn("the publisher", publisher.run(pools, shutdown.clone()));
    tokio::spawn(published_metrics::follow(published.clone(), metrics.published.clone(), started));

    let (registration_sender, registration) = watch::channel(RegistrationState::Waiting);
    let (preparer_sender, preparer) = watch::channel(None);
    let dump = Dump::new(tasks.clone(), preparer.clone(), metrics.kubelet.clone());
    tasks.spawn("the dump on SIGUSR2", dump.context("cannot handle signals")?.run(shutdown.clone()));
    let (listening_sender, listening) = watch::channel(false);
    let (trouble_sender, trouble) = watch::channel(None);
    let policy = options.health_policy.clone();
    let machine_events = MachineEvents {
        events: events.clone(),
        of_node: of_node.clone(),
        machines: machines.clone(),
        preparer: preparer.clone(),
    };
    tasks.spawn("the Events of the machine", machine_events.run(shutdown.clone()));
    let is_let_go = watch::Sender::new(false);
    let let_go_file = LetGoFile {
        file: options.plugin_directory().join(let_go::FILE),
        closer: closer.clone(),
        is_let_go: is_let_go.clone(),
        of_node: of_node.clone(),
    };
    tasks.spawn("the file that says to let go of the cards", let_go_file.run(shutdown.clone()));
    let owners = OtherOwners {
        kubelet_directory: kubelet_directory.clone(),
        driver_name: driver_name.clone(),
        labels: labels.clone(),
        of_node: of_node.clone(),
        metrics: metrics.owners.clone(),
    };
    tasks.spawn("the look for others who own the cards", owners.run(shutdown.clone()));
    let idle = IdleFollower {
        reports: metrics.usage.report.subscribe(),
        interval: options.usage_interval,
        resolution: resolution.clone(),
        teller: Teller::new(preparer.clone(), events.clone()),
        proc_root: options.proc_root.clone(),
    };
    tasks.spawn("the look for idle claims", idle.run(shutdown.clone()));
    let overuse = OveruseFollower {
        reports: metrics.usage.report.subscribe(),
        teller: Teller::new(preparer.clone(), events.clone()),
    };
    tasks.spawn("the look for claims with too much memory", overuse.run(shutdown.clone()));
    let health_events = HealthEvents {
        events,
        of_node: of_node.clone(),
        policy,
        machines: machines.clone(),
        preparer: preparer.clone(),
    };
    tasks.spawn("the Events of cards", health_events.run(shutdown.clone()));
    let readiness_published = published.clone();
    let readiness = Readiness {
        listening,
        trouble,
        registration,
        hardware: hardware.clone(),
        hardware_reason: hardware_reason.clone(),
        looks: looks.clone(),
        driver_files: driver_files.subscribe(),
        pools: reading,
        published,
    };
    let sweep = UsageSweep {
        interval: options.usage_interval,
        hardware: hardware.clone(),
        machines: machines.clone(),
        looks: looks.clone(),
        preparer: preparer.clone(),
        proc_root: options.proc_root.clone(),
        metrics: metrics.usage.clone(),
    };
    tasks.spawn("the look at what cards do", sweep.run(shutdown.clone()));
    if let Some(address) = options.grpc_health_address {
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!(
                "cannot listen on {address} for gRPC's health service: choose another --grpc-health-address"
            )
        })?;
        tracing::info!(address = %listener.local_addr().unwrap_or(address), "gRPC's health service");
        let health = GrpcHealth { sockets: sockets.clone(), listening: readiness.listening.clone() };
        tasks.spawn_fallible("gRPC's health service", health.serve(listener, shutdown.clone()));
    }
    let observed = http::Observed {
        metrics: metrics.clone(),
        readiness,
        sockets,
        preparer,
        threads: FreeThreads::default(),
    };
    tasks.spawn("the HTTP server", http.serve(observed, shutdown.clone()));

    let node = NodePart {
        options: options.clone(),
        client,
        hardware,
        hardware_reason,
        let_go,
        is_let_go: is_let_go.subscribe(),
        closer,
        reset_cards,
        of_node,
        machines,
        own_partitions: own_partitions_sender,
        looks,
        look_again,
        published: readiness_published,
        driver_files,
        metrics: metrics.clone(),
        pools: pool_sender,
        published_before,
        registration: registration_sender,
        preparer: preparer_sender,
        listening: listening_sender,
        trouble: trouble_sender,
        resolution,
        history,
        shutdown: shutdown.clone(),
    };
    tasks.spawn_fallible("the node part", node.run(tasks.clone()));
    Ok(())
}
