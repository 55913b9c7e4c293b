use std::{
    env, fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node as NodeObject, ServiceAccount};
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    Cluster, ClusterError, ClusterOptions, ClusterRecord, Component, Supervisor, Tier, components, failure,
    users,
};
use crate::{
    STATE_PREFIX,
    certificates::{API_SERVICE_ADDRESS, Certificates},
    host::{Address, Host, NetworkConfiguration, SupervisorConfiguration, host_executable},
    image::{TEST_IMAGE, write_test_image},
    node::{self, Node},
    timings::Stopwatch,
    tools::{Module, Tools},
};

/// How long the control plane or a node may take on a busy machine: four times what was measured on one.
const LIMIT: Duration = Duration::from_secs(60);

/// Most nodes of the node tier; each takes 170 MiB.
const MOST_NODES: usize = 8;

/// Longest base directory for clusters, so that sockets deep below stay within 107 bytes.
const LONGEST_BASE: usize = 20;

/// Where clusters live: the directory for temporary files, unless its path is long.
pub(super) fn base_directory() -> PathBuf {
    let directory = env::temp_dir();
    if directory.as_os_str().len() <= LONGEST_BASE { directory } else { PathBuf::from("/tmp") }
}

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
    if options.helm {
        modules.push(Module::Helm);
    }
    let tools = Tools::build_in_background(&modules, &options.progress).await?;
    let watch = Stopwatch::start(options.progress.clone());

    let record = prepare(&options, tools)?;
    let state = record.state.clone();
    failure::watch(&state);
    let mut cluster = Cluster { record, timings: Default::default(), supervisor: None };
    match bring_up(&mut cluster, &options, &watch).await {
        Ok(()) => {
            cluster.timings = watch.finish();
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

/// Makes the cluster's directory with all that is fixed beforehand.
fn prepare(options: &ClusterOptions, tools: Tools) -> Result<ClusterRecord, ClusterError> {
    let base = base_directory();
    let state = tempfile::Builder::new()
        .prefix(STATE_PREFIX)
        .rand_bytes(6)
        .tempdir_in(&base)
        .map_err(ClusterError::io(&base))?
        .keep();
    // Containers that run as other users pass through it.
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).map_err(ClusterError::io(&state))?;
    for folder in ["log", "pki", "inside"] {
        let path = state.join(folder);
        fs::create_dir(&path).map_err(ClusterError::io(&path))?;
    }
    let (nodes, names) = match options.tier {
        Tier::Node => {
            let count = u8::try_from(options.nodes.max(1)).unwrap_or(u8::MAX);
            let nodes: Vec<Node> = (0..count).map(|index| Node::new(&state, index)).collect();
            let names = nodes.iter().map(|node| node.name().to_owned()).collect::<Vec<_>>();
            (nodes, names)
        }
        Tier::Scheduler => (Vec::new(), (0..options.nodes).map(object_name).collect()),
    };
    // In namespaces of its own any port is free.
    let [api_port, etcd_port, etcd_peer_port] = match options.tier {
        Tier::Node => [443, 2379, 2380],
        Tier::Scheduler => free_ports()?,
    };
    let tokens = users::tokens(names.into_iter())?;
    let executable = host_executable()?;
    let mut visible: Vec<PathBuf> = vec![state.clone(), crate::workspace::root().to_owned()];
    visible.extend(executable.parent().map(Path::to_owned));
    visible.extend(Module::ALL.iter().filter_map(|module| tools.directory(*module)).map(Path::to_owned));
    let record = ClusterRecord {
        state,
        tier: options.tier,
        api_port,
        outside_port: api_port,
        etcd_port,
        etcd_peer_port,
        tokens,
        nodes,
        tools,
        extra: options.extra.clone(),
        visible: visible.into_iter().filter(|path| path.is_dir()).collect(),
    };
    write_keys(&record)?;
    Ok(record)
}

fn write_keys(record: &ClusterRecord) -> Result<(), ClusterError> {
    let certificates = Certificates::generate()?;
    let files = [
        ("pki/ca.crt", &certificates.authority),
        ("pki/server.crt", &certificates.server),
        ("pki/server.key", &certificates.server_key),
        ("pki/service-account.key", &certificates.service_account_key),
        ("pki/service-account.pub", &certificates.service_account_public),
        ("tokens.csv", &users::token_file(&record.tokens)),
    ];
    for (name, text) in files {
        write(&record.state.join(name), text)?;
    }
    let inside = format!("https://127.0.0.1:{}", record.api_port);
    for (name, user) in
        [("kube-controller-manager", users::CONTROLLER_MANAGER), ("kube-scheduler", users::SCHEDULER)]
    {
        let config = users::kubeconfig(&inside, &certificates.authority, &record.tokens[user]);
        write(&record.state.join(format!("inside/{name}.kubeconfig")), &config.to_string())?;
    }
    for node in &record.nodes {
        let server = format!("https://{API_SERVICE_ADDRESS}");
        let config = users::kubeconfig(
            &server,
            &certificates.authority,
            &record.tokens[&users::node_user(node.name())],
        );
        let folder = node.directory().join("etc");
        fs::create_dir_all(&folder).map_err(ClusterError::io(&folder))?;
        write(&folder.join("kubelet.kubeconfig"), &config.to_string())?;
    }
    Ok(())
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
            wait_for_service_account(&client).await?;
            watch.reached("default service account");
            cluster.wait_until_ready().await?;
            watch.reached("nodes ready");
        }
        Tier::Scheduler => {
            for index in 0..options.nodes {
                cluster.add_node_object(&object_name(index)).await?;
            }
            wait_for_service_account(&client).await?;
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

/// Boots the nodes side by side, up to a containerd with the test image.
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

async fn wait_for_api(
    record: &ClusterRecord,
    client: &Client,
    watch: &Stopwatch,
) -> Result<(), ClusterError> {
    let end = Instant::now() + LIMIT;
    let mut answered = false;
    loop {
        let request = http::Request::get("/readyz")
            .body(Vec::new())
            .map_err(|error| ClusterError::Configuration(error.to_string()))?;
        let last = match client.request_text(request).await {
            Ok(text) if text == "ok" => {
                watch.reached("API ready");
                return Ok(());
            }
            Ok(text) => text,
            Err(kube::Error::Api(status)) => {
                if !answered {
                    watch.reached("API answers");
                    answered = true;
                }
                status.message
            }
            Err(error) => error.to_string(),
        };
        alive(record, &[Component::Etcd, Component::ApiServer]).await?;
        if Instant::now() > end {
            return Err(ClusterError::NotReady { what: "the API server".to_owned(), last });
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// The last lines of a log.
pub(crate) fn log_end(record: &ClusterRecord, name: &str) -> String {
    let text = fs::read_to_string(record.log(name)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// Fails with the log of the first of these that has ended.
async fn alive(record: &ClusterRecord, components: &[Component]) -> Result<(), ClusterError> {
    for process in record.control_plane().processes().await? {
        let wanted = components.iter().any(|component| component.name() == process.name);
        if let (true, Some(exit)) = (wanted, process.exit) {
            let log = log_end(record, &process.name);
            return Err(ClusterError::Died { component: process.name, exit: exit.to_string(), log });
        }
    }
    Ok(())
}

/// Pods of the namespace `default` are refused before it exists.
async fn wait_for_service_account(client: &Client) -> Result<(), ClusterError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let end = Instant::now() + LIMIT;
    loop {
        match accounts.get_opt("default").await {
            Ok(Some(_)) => return Ok(()),
            other if Instant::now() > end => {
                let last = format!("{:?}", other.map(|found| found.is_some()));
                return Err(ClusterError::NotReady { what: "the service account default".to_owned(), last });
            }
            _ => sleep(Duration::from_millis(20)).await,
        }
    }
}

impl Cluster {
    /// Waits until the API is ready and all real nodes are.
    ///
    /// # Errors
    /// It takes longer than a minute, or a component has ended.
    pub async fn wait_until_ready(&self) -> Result<(), ClusterError> {
        let client = self.client().await?;
        let watch = Stopwatch::start(crate::progress::Progress::silent());
        wait_for_api(&self.record, &client, &watch).await?;
        let nodes: Api<NodeObject> = Api::all(client);
        for node in self.nodes() {
            let end = Instant::now() + LIMIT;
            loop {
                let found = nodes.get_opt(node.name()).await;
                let conditions =
                    found.ok().flatten().and_then(|node| node.status).and_then(|status| status.conditions);
                let ready = conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
                if ready.is_some_and(|condition| condition.status == "True") {
                    break;
                }
                node::alive(&self.record, node).await?;
                if Instant::now() > end {
                    let last = ready.and_then(|condition| condition.message.clone());
                    let last = last.unwrap_or_else(|| {
                        format!("see {}", self.record.log(&format!("{}-kubelet", node.name())).display())
                    });
                    return Err(ClusterError::NotReady { what: format!("node {}", node.name()), last });
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Adds a node that is an API object only, ready and with room for 110 pods: for the scheduler tier.
    ///
    /// # Errors
    /// The API refuses it.
    pub async fn add_node_object(&self, name: &str) -> Result<NodeObject, ClusterError> {
        let resources = json!({ "cpu": "64", "memory": "512Gi", "pods": "110" });
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" },
            },
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": [{ "type": "Ready", "status": "True", "reason": "TestNode" }],
            },
        });
        let node =
            serde_json::from_value(node).map_err(|error| ClusterError::Configuration(error.to_string()))?;
        let nodes: Api<NodeObject> = Api::all(self.client().await?);
        Ok(nodes.create(&PostParams::default(), &node).await?)
    }

    /// Imports an image archive, such as [`crate::Image::write`] makes, on all nodes.
    ///
    /// # Errors
    /// containerd refuses it.
    pub async fn import_image(&self, archive: &Path) -> Result<(), ClusterError> {
        try_join_all(self.nodes().iter().map(|node| node::import_image(&self.record, node, archive))).await?;
        Ok(())
    }
}

fn object_name(index: usize) -> String {
    match u8::try_from(index) {
        Ok(index) if index < 26 => format!("node-{}", char::from(b'a' + index)),
        _ => format!("node-{}", index + 1),
    }
}

/// Ports that are free now. Held all at once while they are chosen, so that they differ.
fn free_ports() -> Result<[u16; 3], ClusterError> {
    let failed = ClusterError::io(Path::new("127.0.0.1"));
    let choose = || -> std::io::Result<[u16; 3]> {
        let bind = || TcpListener::bind(("127.0.0.1", 0));
        let held = [bind()?, bind()?, bind()?];
        Ok([held[0].local_addr()?.port(), held[1].local_addr()?.port(), held[2].local_addr()?.port()])
    };
    choose().map_err(failed)
}

fn write(path: &Path, text: &str) -> Result<(), ClusterError> {
    fs::write(path, text).map_err(ClusterError::io(path))
}
