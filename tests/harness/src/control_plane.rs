//! Command lines of etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

use std::path::Path;

use crate::{
    cluster::{ClusterRecord, Tier},
    host::CommandLine,
    tools::{Module, ToolError},
};

/// The controllers to run, by their names in kube-controller-manager/names. Pods do not start without the first two;
/// the garbage collector deletes generated claims with their pods.
const CONTROLLERS: &[&str] = &[
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
    "taint-eviction-controller",
    "device-taint-eviction-controller",
    "resourceclaim-controller",
    "validatingadmissionpolicy-status-controller",
    "daemonset-controller",
    "deployment-controller",
    "replicaset-controller",
    "job-controller",
    "statefulset-controller",
    // Without this controller no budget ever allows an eviction, so no drain ends. Without the next, no quota counts.
    "disruption-controller",
    "resourcequota-controller",
];

/// Taints nodes without a running kubelet, so must not run for nodes that are only API objects.
const NODE_LIFECYCLE: &str = "node-lifecycle-controller";

pub(crate) fn etcd(record: &ClusterRecord) -> Result<CommandLine, ToolError> {
    let client = format!("http://127.0.0.1:{}", record.etcd_port);
    let peer = format!("http://127.0.0.1:{}", record.etcd_peer_port);
    Ok(CommandLine::new(record.tools.path(Module::Etcd, "etcd")?)
        .flag("name", "e")
        .flag("data-dir", record.state.join("etcd").display())
        .flag("log-level", "warn")
        // Data lost in a power failure does not matter here.
        .argument("--unsafe-no-fsync")
        .flag("heartbeat-interval", 50)
        .flag("election-timeout", 500)
        .flag("listen-client-urls", &client)
        .flag("advertise-client-urls", &client)
        .flag("listen-peer-urls", &peer)
        .flag("initial-advertise-peer-urls", &peer)
        .flag("initial-cluster", format!("e={peer}")))
}

pub(crate) fn api_server(record: &ClusterRecord) -> Result<CommandLine, ToolError> {
    let keys = |name: &str| record.state.join("pki").join(name).display().to_string();
    let mut command = CommandLine::new(record.tools.path(Module::Kubernetes, "kube-apiserver")?)
        .flag("etcd-servers", format!("http://127.0.0.1:{}", record.etcd_port))
        .flag("bind-address", if record.tier == Tier::Node { "0.0.0.0" } else { "127.0.0.1" })
        .flag("advertise-address", "127.0.0.1")
        .flag("secure-port", record.api_port)
        .flag("tls-cert-file", keys("server.crt"))
        .flag("tls-private-key-file", keys("server.key"))
        .flag("client-ca-file", keys("ca.crt"))
        .flag("token-auth-file", record.state.join("tokens.csv").display())
        .flag("authorization-mode", "Node,RBAC")
        .flag("enable-admission-plugins", "NodeRestriction")
        .flag("service-account-issuer", "https://kubernetes.default.svc")
        .flag("service-account-key-file", keys("service-account.pub"))
        .flag("service-account-signing-key-file", keys("service-account.key"))
        .flag("service-cluster-ip-range", "10.96.0.0/24")
        .flag("endpoint-reconciler-type", "none")
        .flag("allow-privileged", true)
        .flag("event-ttl", "10m")
        .flag("profiling", false)
        .flag("goaway-chance", 0)
        .flag("kubelet-preferred-address-types", "InternalIP")
        .flag("shutdown-delay-duration", "0s");
    if record.tier == Tier::Scheduler {
        command = command.flag("disable-admission-plugins", "TaintNodesByCondition");
    }
    if record.audit {
        command = command
            .flag("audit-policy-file", record.audit_policy().display())
            .flag("audit-log-path", record.audit_log().display());
    }
    Ok(with_gates(command, record).arguments(record.extra.api_server.iter().cloned()))
}

pub(crate) fn controller_manager(record: &ClusterRecord) -> Result<CommandLine, ToolError> {
    let mut controllers = CONTROLLERS.to_vec();
    if record.tier == Tier::Node {
        controllers.push(NODE_LIFECYCLE);
    }
    let command = CommandLine::new(record.tools.path(Module::Kubernetes, "kube-controller-manager")?)
        .flag("kubeconfig", kubeconfig(&record.state, "kube-controller-manager"))
        .flag("leader-elect", false)
        .flag("secure-port", 0)
        .flag("use-service-account-credentials", false)
        .flag("service-account-private-key-file", record.state.join("pki/service-account.key").display())
        .flag("root-ca-file", record.state.join("pki/ca.crt").display())
        .flag("controllers", controllers.join(","));
    Ok(with_gates(command, record).arguments(record.extra.controller_manager.iter().cloned()))
}

pub(crate) fn scheduler(record: &ClusterRecord) -> Result<CommandLine, ToolError> {
    let command = CommandLine::new(record.tools.path(Module::Kubernetes, "kube-scheduler")?)
        .flag("kubeconfig", kubeconfig(&record.state, "kube-scheduler"))
        .flag("leader-elect", false)
        .flag("secure-port", 0);
    Ok(with_gates(command, record).arguments(record.extra.scheduler.iter().cloned()))
}

fn kubeconfig(state: &Path, name: &str) -> String {
    state.join("inside").join(format!("{name}.kubeconfig")).display().to_string()
}

fn with_gates(command: CommandLine, record: &ClusterRecord) -> CommandLine {
    if record.extra.feature_gates.is_empty() {
        return command;
    }
    let gates: Vec<String> =
        record.extra.feature_gates.iter().map(|(gate, enabled)| format!("{gate}={enabled}")).collect();
    command.flag("feature-gates", gates.join(","))
}
