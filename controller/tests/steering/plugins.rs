//! Nodes whose slices a real kubelet plugin publishes, each from an emulated machine of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use futures::future::join_all;
use tempfile::TempDir;
use tessera_fakes::machine::EmulatedMachine;
use tessera_harness::{Cluster, workspace};

/// Cards of each node: L40S, which have no MIG, so that each is one device.
pub const CARDS: usize = 4;

/// A node of which only the plugin runs. It ends when dropped.
pub struct PluginNode {
    pub name: String,
    child: Child,
    _machine: EmulatedMachine,
    _directory: TempDir,
}

impl PluginNode {
    /// Makes the node object, with a label `zone`, and starts the plugin.
    async fn start(cluster: &Cluster, program: &Path, number: usize) -> Self {
        let name = format!("n{number:02}");
        cluster.add_node_object(&name).await.unwrap();
        let machine = EmulatedMachine::with("l40s-x8", &["--cards", &CARDS.to_string()]);
        // A socket's path has at most 107 bytes.
        let directory = tempfile::Builder::new().prefix("n").rand_bytes(5).tempdir_in("/tmp").unwrap();
        let log = std::fs::File::create(cluster.logs().join(format!("kubelet-plugin-{name}"))).unwrap();
        let (root, own) = (machine.root(), directory.path());
        let child = Command::new(program)
            .env_clear()
            .args(["--node-name", &name, "--http-address", "127.0.0.1:0", "--shutdown-timeout", "1"])
            .arg("--probe-socket")
            .arg(own.join("probe.sock"))
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig())
            .arg("--kubelet-directory")
            .arg(own.join("k"))
            .arg("--cdi-directory")
            .arg(own.join("cdi"))
            .arg("--driver-root")
            .arg(&root)
            .arg("--sysfs-root")
            .arg(root.join("sys"))
            .arg("--proc-root")
            .arg(root.join("proc"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { name, child, _machine: machine, _directory: directory }
    }
}

impl Drop for PluginNode {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// So many nodes: `n00`, `n01`, …; every other one is in the zone `a`, the rest in `b`.
pub async fn start(cluster: &Cluster, count: usize) -> Vec<PluginNode> {
    let build = || workspace::build_packages(&["tessera-kubelet-plugin", "tessera-emulator"]).unwrap();
    let program = tokio::task::spawn_blocking(build).await.unwrap().join("kubelet-plugin");
    let nodes = join_all((0..count).map(|number| PluginNode::start(cluster, &program, number))).await;
    for (zone, first) in [("a", 0), ("b", 1)] {
        let names = nodes.iter().skip(first).step_by(2).map(|node| node.name.as_str());
        let label = format!("zone={zone}");
        let arguments: Vec<&str> = ["label", "node"].into_iter().chain(names).chain([&*label]).collect();
        cluster.kubectl(&arguments).await.unwrap();
    }
    nodes
}
