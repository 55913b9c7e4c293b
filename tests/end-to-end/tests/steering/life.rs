//! The chart is upgraded, rolled back and uninstalled while pods run.

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tessera_harness::installation::{DRIVER, Installation, InstallationOptions, NAMESPACE as RELEASE};
use tessera_harness::{Cluster, Node, PodState, TEST_IMAGE};

use super::{NAMESPACE, apply, node, until};

/// The pods with cards that run all the time.
const RUNNING: [&str; 3] = ["notebook-1", "notebook-2", "managed"];

/// Cluster-wide kinds that the chart makes.
const CLUSTER_WIDE: &str = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,\
                            mutatingadmissionpolicies,mutatingadmissionpolicybindings,deviceclasses";
/// Kinds that it makes in its namespace.
const OF_NAMESPACE: &str = "pods,daemonsets,deployments,jobs,configmaps,services,serviceaccounts,roles,rolebindings,\
                            poddisruptionbudgets,networkpolicies";

pub fn one_card(name: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "c", "image": TEST_IMAGE, "imagePullPolicy": "Never",
                "command": ["/bin/hold", "view"], "resources": { "claims": [{ "name": "card" }] } }],
            "resourceClaims": [{ "name": "card", "resourceClaimTemplateName": "one-card" }],
        },
    })
    .to_string()
}

/// What tells the containers of the pods that run from such that were started again.
async fn containers(cluster: &Cluster) -> Vec<(String, i32)> {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), NAMESPACE);
    let mut containers = Vec::new();
    for pod in RUNNING {
        let status = pods.get(pod).await.unwrap().status.unwrap().container_statuses.unwrap().remove(0);
        assert!(status.state.unwrap().running.is_some(), "{pod} does not run");
        containers.push((status.container_id.unwrap(), status.restart_count));
    }
    containers
}

async fn rolled_out(cluster: &Cluster) {
    for workload in ["daemonset/tessera-kubelet-plugin", "deployment/tessera-controller"] {
        let wait = ["rollout", "status", workload, "--namespace", RELEASE, "--timeout=180s"];
        cluster.kubectl(&wait).await.unwrap();
    }
}

/// A pod gets a card, and gives it back.
async fn another_pod(cluster: &Cluster, name: &str) {
    apply(cluster, &one_card(name)).await;
    node(cluster, name, PodState::Ready).await;
    cluster.delete_pod(NAMESPACE, name).await.unwrap();
}

/// Pods keep their containers and cards through both, and the next ones get theirs.
pub async fn upgrade_and_roll_back(
    cluster: &Cluster,
    tessera: &Installation,
    installed: &InstallationOptions,
) {
    let before = containers(cluster).await;
    let mut other = installed.clone();
    other.values.extend(["kubeletPlugin.logLevel=debug", "controller.logLevel=debug"].map(str::to_owned));
    tessera.upgrade(cluster, "v2", &other).await.unwrap();
    another_pod(cluster, "while-upgraded").await;
    rolled_out(cluster).await;
    another_pod(cluster, "after-upgrade").await;
    cluster.helm(&["rollback", "tessera", "1", "--namespace", RELEASE]).await.unwrap();
    rolled_out(cluster).await;
    another_pod(cluster, "after-rollback").await;
    assert_eq!(containers(cluster).await, before);
}

/// Pods keep their cards. What stays of Tessera is what those pods need, the pools and their kind.
pub async fn uninstall(cluster: &Cluster) {
    let before = containers(cluster).await;
    cluster.helm(&["uninstall", "tessera", "--namespace", RELEASE, "--timeout", "120s"]).await.unwrap();
    // Whoever has no right more than these could neither delete the bindings nor lift a gate.
    let used = cluster.rights_used(RELEASE, "tessera-controller-ungate").unwrap();
    let needed =
        ["delete mutatingadmissionpolicybindings.admissionregistration.k8s.io", "list pods", "patch pods"];
    assert_eq!(used, needed.map(str::to_owned).into());

    let label = ["-l", "app.kubernetes.io/instance=tessera", "-o", "name"];
    let left = async |arguments: &[&str]| {
        cluster.kubectl(&[&["get"], arguments, &label[..]].concat()).await.unwrap()
    };
    assert_eq!(left(&[CLUSTER_WIDE]).await, "");
    until("the namespace is empty", async || left(&[OF_NAMESPACE, "--namespace", RELEASE]).await.is_empty())
        .await;
    let slices: Api<ResourceSlice> = Api::all(cluster.client().await.unwrap());
    until("the kubelets have removed the slices", async || {
        slices.list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
    cluster.kubectl(&["get", "crd/gpupools.gpu.tessera.dev", "gpupool/main"]).await.unwrap();

    let claims: Api<ResourceClaim> = Api::namespaced(cluster.client().await.unwrap(), NAMESPACE);
    let claims = claims.list(&ListParams::default()).await.unwrap().items;
    let is_used =
        |claim: &&ResourceClaim| claim.status.as_ref().is_some_and(|status| status.reserved_for.is_some());
    let used: Vec<String> = claims.iter().filter(is_used).filter_map(|claim| claim.uid()).collect();
    assert_eq!(used.len(), RUNNING.len(), "{used:?}");
    let (mut specs, mut records) = (Vec::new(), Vec::new());
    for machine in cluster.nodes() {
        assert_eq!(sockets(machine), [""; 0], "{}", machine.name());
        let of_devices = |name: &String| name.contains("-claim_");
        specs.extend(visible(&machine.cdi_directory()).into_iter().filter(of_devices));
        records.extend(visible(&machine.plugins_directory().join(DRIVER).join("journal/claims")));
    }
    for kept in [specs, records] {
        let of_a_claim = |name: &String| used.iter().any(|uid| name.contains(uid));
        assert!(kept.len() == used.len() && kept.iter().all(of_a_claim), "{kept:?} of {used:?}");
    }
    assert_eq!(containers(cluster).await, before);
}

/// Tessera's sockets on a node.
fn sockets(node: &Node) -> Vec<String> {
    let mut sockets = visible(&node.plugins_registry_directory());
    sockets.extend(visible(&node.plugins_directory().join(DRIVER)));
    sockets.retain(|name| name.ends_with(".sock"));
    sockets
}

/// Names in a directory, without hidden files; none where it is missing.
fn visible(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}
