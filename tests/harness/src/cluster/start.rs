use std::{
    env,
    fs::{self, OpenOptions},
    io::Write as _,
    process::{Command, Stdio},
    time::Duration,
};

use futures::future::try_join_all;
use tokio::time::{Instant, sleep};

use super::{
    Cluster, ClusterError, ClusterOptions, ClusterRecord, Component, Supervisor, Tier, components, failure,
    nodes::object_name,
    prepare::{prepare, write},
    ready::{LIMIT, log_end, wait_for_api, wait_for_service_account},
    users,
};
use crate::{
    certificates::API_SERVICE_ADDRESS,
    host::{Address, Host, NetworkConfiguration, SupervisorConfiguration, host_executable},
    image::{TEST_IMAGE, write_test_image},
    node,
    timings::Stopwatch,
    tools::{Module, Tools},
};

/// Attempts at starting a cluster of the scheduler tier, in case another process takes one of its ports first.
const TRIES: usize = 3;

/// Largest number of nodes in the node tier; each takes 170 MiB.
const MOST_NODES: usize = 8;

pub(super) async fn start(options: ClusterOptions) -> Result<Cluster, ClusterError> {
    if options.tier == Tier::Node {
        Cluster::node_tier_available()?;
        if options.nodes > MOST_NODES {
            return Err(ClusterError::Configuration(format!(
                "at most {MOST_NODES} real nodes, not {}",
                options.nodes
            )));
        }
    }
    let mut modules = match options.tier {
        Tier::Scheduler => Module::CONTROL_PLANE.to_vec(),
        Tier::Node => Module::NODE.to_vec(),
    };
    for module in &mut modules {
        if *module == Module::Kubernetes {
            *module = options.kubernetes.module();
        }
    }
    if options.helm {
        modules.push(Module::Helm);
    }
    let tools = Tools::build_in_background(&modules, &options.progress).await?;
    let mut tries = 1;
    loop {
        match try_start(&options, tools.clone()).await {
            Err(error) if tries < TRIES && error.is_taken_port() => tries += 1,
            outcome => return outcome,
        }
    }
}

async fn try_start(options: &ClusterOptions, tools: Tools) -> Result<Cluster, ClusterError> {
    let watch = Stopwatch::start(options.progress.clone());
    let record = prepare(options, tools)?;
    let state = record.state.clone();
    failure::watch(&state);
    let mut cluster = Cluster { record, timings: Default::default(), supervisor: None };
    match bring_up(&mut cluster, options, &watch).await {
        Ok(()) => {
            cluster.timings = watch.finish();
            note(cluster.timings.total());
            Ok(cluster)
        }
        Err(error) => {
            failure::mark(&state);
            let logs = state.join("log");
            drop(cluster);
            failure::tidy(&state);
            Err(ClusterError::Start { logs, source: Box::new(error) })
        }
    }
}

/// Adds the duration of a start to the file of `cargo xtask test`, where there is one.
fn note(took: Duration) {
    let Some(path) = env::var_os("TESSERA_CLUSTERS") else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    // Not worth a failed test.
    let _ = file.and_then(|mut file| writeln!(file, "{:.3}", took.as_secs_f64()));
}

async fn bring_up(
    cluster: &mut Cluster,
    options: &ClusterOptions,
    watch: &Stopwatch,
) -> Result<(), ClusterError> {
    cluster.supervisor = Some(supervise(&cluster.record)?);
    let control_plane = cluster.record.control_plane();
    wait_for_host(cluster, &control_plane).await?;
    if options.tier == Tier::Node {
        let path = cluster.record.state.join("port");
        let text = fs::read_to_string(&path).map_err(ClusterError::io(&path))?;
        cluster.record.outside_port = text
            .trim()
            .parse()
            .map_err(|error| ClusterError::Configuration(format!("{}: {error}", path.display())))?;
        // The service `kubernetes` needs no proxy: its address is the control plane's own.
        let service = Address { address: API_SERVICE_ADDRESS, prefix: 32 };
        let addresses = vec![("lo".to_owned(), service)];
        control_plane.network(NetworkConfiguration { addresses, ..NetworkConfiguration::default() }).await?;
    }
    let record = &cluster.record;
    let config = record.config(users::ADMIN)?;
    let text =
        serde_json::to_string(&config).map_err(|error| ClusterError::Configuration(error.to_string()))?;
    write(&cluster.kubeconfig(), &text)?;
    record.write()?;
    watch.reached("namespaces and keys");

    components::spawn(record, Component::Etcd).await?;
    components::spawn(record, Component::ApiServer).await?;
    let client = users::client(config).await?;
    let nodes = start_nodes(record, watch);
    let api = async {
        wait_for_api(record, &client, watch).await?;
        components::spawn(record, Component::ControllerManager).await?;
        components::spawn(record, Component::Scheduler).await
    };
    tokio::try_join!(nodes, api)?;

    match record.tier {
        Tier::Node => {
            for node in &record.nodes {
                node::start_kubelet(record, node).await?;
            }
            wait_for_service_account(&client, "default").await?;
            watch.reached("default service account");
            cluster.wait_until_ready().await?;
            watch.reached("nodes ready");
        }
        Tier::Scheduler => {
            for index in 0..options.nodes {
                cluster.add_node_object(&object_name(index)).await?;
            }
            wait_for_service_account(&client, "default").await?;
            watch.reached("default service account");
        }
    }
    Ok(())
}

fn supervise(record: &ClusterRecord) -> Result<Supervisor, ClusterError> {
    let configuration = SupervisorConfiguration {
        state: record.state.clone(),
        isolated: record.tier == Tier::Node,
        visible: record.visible.clone(),
    };
    let argument = serde_json::to_string(&configuration)
        .map_err(|error| ClusterError::Configuration(error.to_string()))?;
    let log = record.log("cluster-host");
    let output = fs::File::create(&log).map_err(ClusterError::io(&log))?;
    let program = host_executable()?;
    let mut process = Command::new(&program)
        .arg("supervise")
        .arg(argument)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(output.try_clone().map_err(ClusterError::io(&log))?)
        .stderr(output)
        .spawn()
        .map_err(ClusterError::io(&program))?;
    let pipe = process.stdin.take();
    Ok(Supervisor { process, pipe })
}

/// Waits for the control plane's host, or for the supervisor's early end.
async fn wait_for_host(cluster: &mut Cluster, host: &Host) -> Result<(), ClusterError> {
    let end = Instant::now() + LIMIT;
    while let Err(error) = host.processes().await {
        if let Some(supervisor) = &mut cluster.supervisor
            && let Ok(Some(status)) = supervisor.process.try_wait()
        {
            let log = log_end(&cluster.record, "cluster-host");
            return Err(ClusterError::Died {
                component: "cluster-host".to_owned(),
                exit: status.to_string(),
                log,
            });
        }
        if Instant::now() > end {
            return Err(error.into());
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Boots the nodes concurrently, up to a containerd with the test image.
async fn start_nodes(record: &ClusterRecord, watch: &Stopwatch) -> Result<(), ClusterError> {
    if record.nodes.is_empty() {
        return Ok(());
    }
    let image = record.state.join("testimage.tar");
    let program = record.tools.path(Module::Testimage, "testimage")?;
    let archive = image.clone();
    let written = tokio::task::spawn_blocking(move || write_test_image(&program, &archive));
    let control_plane = record.control_plane();
    try_join_all(record.nodes.iter().map(|node| async {
        node::boot(record, node, &control_plane).await?;
        node::wait_for_containerd(record, node).await
    }))
    .await?;
    watch.reached("containerd");
    written.await.map_err(|error| ClusterError::Configuration(error.to_string()))??;
    try_join_all(record.nodes.iter().map(|node| node::import_image(record, node, &image))).await?;
    watch.reached(TEST_IMAGE);
    Ok(())
}
