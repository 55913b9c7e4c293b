//! One control plane with helm for all tests of this program.

use std::{path::PathBuf, time::Duration};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use tessera_harness::{Cluster, ClusterError, ClusterOptions, host::host_executable, workspace};
use tokio::sync::{Mutex, OnceCell};

/// Time limit for eventual conditions on a busy machine.
pub const LONG: Duration = Duration::from_secs(90);

/// Held by a test during a release with managed allocation: one release's policy would refuse the other controller's writes
/// on pods.
pub static MANAGED_RELEASE: Mutex<()> = Mutex::const_new(());

pub async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let start = || async {
        // The cluster's own program, not built by `cargo test` of this package alone.
        if host_executable().is_err() {
            tokio::task::spawn_blocking(workspace::build_programs).await.expect("no panic").expect("built");
        }
        let options = ClusterOptions { helm: true, ..ClusterOptions::scheduler_tier(0) };
        Cluster::start(options).await.expect("a cluster")
    };
    CLUSTER.get_or_init(start).await
}

pub fn chart() -> String {
    path("charts/tessera").display().to_string()
}

pub fn path(in_repository: &str) -> PathBuf {
    workspace::root().join(in_repository)
}

/// Runs `helm template` with these values.
pub async fn template(values: &[&str], more: &[&str]) -> Result<String, ClusterError> {
    let chart = chart();
    let mut arguments =
        vec!["template", "rendered", &chart, "--namespace", "default", "--kube-version", "1.36.3"];
    for value in values {
        arguments.extend(["--set-json", value]);
    }
    arguments.extend(more);
    cluster().await.helm(&arguments).await
}

/// The objects made by the API server from these manifests, without storing them.
pub async fn accepted(manifests: &str) -> Vec<Value> {
    // Not `create`: another test may have installed the chart, with its definitions.
    let arguments =
        ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--output=json", "--filename=-"];
    objects(&cluster().await.kubectl_with_input(&arguments, manifests).await.expect("accepted"))
}

/// Parses kubectl's output: one object after another, or a list of them.
pub fn objects(answer: &str) -> Vec<Value> {
    let documents = serde_json::Deserializer::from_str(answer).into_iter::<Value>();
    let objects = documents.map(|object| object.expect("JSON"));
    objects
        .flat_map(|object| match object.get("items") {
            Some(Value::Array(items)) => items.clone(),
            _ => vec![object],
        })
        .collect()
}

/// The objects of one program.
pub fn of_component(objects: &[Value], component: &str) -> Vec<Value> {
    let is_of = |object: &&Value| object["metadata"]["labels"]["app.kubernetes.io/component"] == component;
    objects.iter().filter(is_of).cloned().collect()
}

/// A list's texts.
pub fn strings(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

pub async fn connect(kubeconfig: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    tessera_kube_util::client::connect(config.expect("valid")).expect("a client")
}

/// Content of the only file of this name in a ConfigMap.
pub fn file<'a>(objects: &'a [Value], name: &str) -> &'a str {
    let mut found = objects
        .iter()
        .filter(|object| object["kind"] == "ConfigMap")
        .filter_map(|map| map["data"][name].as_str());
    let text = found.next().unwrap_or_else(|| panic!("no file {name}"));
    assert!(found.next().is_none(), "several files {name}");
    text
}

/// The only object of this kind.
pub fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut of_kind = objects.iter().filter(|object| object["kind"] == kind);
    let object = of_kind.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(of_kind.next().is_none(), "several {kind}");
    object
}
