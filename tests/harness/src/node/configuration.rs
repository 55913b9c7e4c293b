use std::path::Path;

use serde_json::{Value, json};

use super::Node;
use crate::image::TEST_IMAGE;

/// containerd's configuration.
pub(super) fn containerd(node: &Node, cni: &Path) -> String {
    let own = |name: &str| node.directory().join(name).display().to_string();
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.blockfile", "io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
[debug]
  level = "info"
[plugins.'io.containerd.internal.v1.opt']
  path = "/var/lib/containerd/opt"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{TEST_IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  # Without CAP_SYS_RESOURCE nobody may go below the daemon's own value, as sandboxes want to.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{cni}"]
    conf_dir = "{conf}"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "{runc}"
"#,
        socket = Node::CONTAINERD_SOCKET,
        cni = cni.display(),
        conf = own("etc/cni"),
        runc = own("bin/runc"),
    )
}

/// The pods' network: point to point, no packet filter, addresses from the node's own range.
pub(super) fn cni(node: &Node) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": format!("{}/24", node.pod_network()) }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    })
}

/// The kubelet's configuration.
pub(super) fn kubelet() -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "containerRuntimeEndpoint": format!("unix://{}", Node::CONTAINERD_SOCKET),
        "address": "0.0.0.0",
        "port": 10250,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "localStorageCapacityIsolation": false,
        // The default is in /usr/libexec, and the kubelet would create the folder there.
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%",
        },
        "nodeStatusUpdateFrequency": "4s",
        "resolvConf": "",
        // Nobody serves names here, so queries fail at once. Without an address the kubelet logs an error for every pod each minute.
        "clusterDNS": ["127.0.0.1"],
        "logging": { "verbosity": 2 },
    })
}
