use std::{
    env,
    fs::{self, OpenOptions},
    io::Write,
    net::TcpListener,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use super::{ClusterError, ClusterOptions, ClusterRecord, Tier, audit, nodes::object_name, users};
use crate::{
    STATE_PREFIX,
    certificates::{API_SERVICE_ADDRESS, Certificates},
    host::host_executable,
    node::Node,
    tools::{Module, Tools},
    workspace,
};

/// Longest base directory of clusters, so that socket paths below stay within 107 bytes.
const LONGEST_BASE: usize = 20;

/// The clusters' directory: the one for temporary files, unless its path is too long.
pub(super) fn base_directory() -> PathBuf {
    let directory = env::temp_dir();
    if directory.as_os_str().len() <= LONGEST_BASE { directory } else { PathBuf::from("/tmp") }
}

/// Creates the cluster's directory with everything known beforehand.
pub(super) fn prepare(options: &ClusterOptions, tools: Tools) -> Result<ClusterRecord, ClusterError> {
    let base = base_directory();
    let state = tempfile::Builder::new()
        .prefix(STATE_PREFIX)
        .rand_bytes(6)
        .tempdir_in(&base)
        .map_err(ClusterError::io(&base))?
        .keep();
    // Containers of other users need access to the paths below.
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
    // In its own namespaces every port is free.
    let [api_port, etcd_port, etcd_peer_port] = match options.tier {
        Tier::Node => [443, 2379, 2380],
        Tier::Scheduler => free_ports()?,
    };
    let tokens = users::tokens(names.into_iter())?;
    let executable = host_executable()?;
    let mut visible: Vec<PathBuf> = vec![state.clone(), workspace::root().to_owned()];
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
        audit: options.audit,
        visible: visible.into_iter().filter(|path| path.is_dir()).collect(),
    };
    write_keys(&record)?;
    if record.audit {
        write(&record.audit_policy(), audit::POLICY)?;
    }
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

/// Free ports. All are held until the last is chosen, so they differ.
fn free_ports() -> Result<[u16; 3], ClusterError> {
    let failed = ClusterError::io(Path::new("127.0.0.1"));
    let choose = || -> std::io::Result<[u16; 3]> {
        let bind = || TcpListener::bind(("127.0.0.1", 0));
        let held = [bind()?, bind()?, bind()?];
        Ok([held[0].local_addr()?.port(), held[1].local_addr()?.port(), held[2].local_addr()?.port()])
    };
    choose().map_err(failed)
}

/// Writes a file readable only by its owner: most have keys or tokens.
pub(super) fn write(path: &Path, text: &str) -> Result<(), ClusterError> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(ClusterError::io(path))
}
