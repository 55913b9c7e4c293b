//! The roles that the chart brings are enough for `kubectl gpu`; without them it says what is missing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tessera_harness::{Cluster, ClusterOptions, workspace};

use crate::{LIMIT, run};

const TEAM: &str = "team";
const SYSTEM: &str = "gpu-system";

/// Commands that ask the API server alone.
const OF_OBJECTS: [&[&str]; 10] = [
    &["explain", "claim/mine", "-n", TEAM],
    &["allocate", "claim/mine", "-n", TEAM],
    &["cel", "device.driver == 'gpu.tessera.dev'"],
    &["get"],
    &["get", "claims"],
    &["pools"],
    &["quota"],
    &["topology"],
    &["defrag", "--cards", "1"],
    &["doctor", "-n", TEAM],
];

/// Commands that ask the controller.
const OF_FLEET: [&[&str]; 4] = [&["top"], &["queue"], &["advise"], &["fleet", "--port", "0"]];

/// The chart's roles, who has them, and the objects of a small cluster.
async fn install(cluster: &Cluster) {
    let chart = workspace::root().join("charts/tessera").display().to_string();
    let shown =
        ["templates/user-roles.yaml", "templates/crds.yaml"].map(|path| format!("--show-only={path}"));
    let rendered = ["template", "tessera", &chart, "--namespace", SYSTEM, "--kube-version=1.36.3"];
    let rendered = cluster.helm(&[&rendered[..], &[&shown[0], &shown[1]]].concat()).await.unwrap();
    let bound = |user: &str, role: (&str, &str), namespace: Option<&str>| {
        let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": { "name": format!("{user}-{}", role.1), "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1 },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }] })
    };
    let documents = [
        bound("person", ("ClusterRole", "gpu-system-tessera-user"), None),
        // The parts of Kubernetes' role view, which a controller that this cluster does not run puts together.
        bound("person", ("ClusterRole", "system:aggregate-to-view"), Some(TEAM)),
        bound("person", ("ClusterRole", "gpu-system-tessera-claims"), Some(TEAM)),
        bound("watcher", ("ClusterRole", "gpu-system-tessera-viewer"), None),
        bound("watcher", ("Role", "tessera-fleet-viewer"), Some(SYSTEM)),
        json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": "s" },
            "spec": { "driver": "gpu.tessera.dev", "nodeName": "node-a", "devices": [{ "name": "gpu-01-00" }],
                "pool": { "name": "gpu.tessera.dev/node-a", "generation": 1, "resourceSliceCount": 1 } } }),
        json!({ "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "card" }, "spec": {
            "selectors": [{ "cel": { "expression": "device.driver == 'gpu.tessera.dev'" } }] } }),
        json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "mine", "namespace": TEAM },
            "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "card" } }] } } }),
        // A controller that leads, on a node without a kubelet.
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "leader", "namespace": SYSTEM },
            "spec": { "nodeName": "node-a", "containers": [
                { "name": "c", "image": "i", "ports": [{ "name": "fleet", "containerPort": 8081 }] }] } }),
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "tessera-controller", "namespace": SYSTEM },
            "spec": { "holderIdentity": "leader", "leaseDurationSeconds": 15, "renewTime": "2999-01-01T00:00:00.000000Z" } }),
    ];
    for namespace in [TEAM, SYSTEM] {
        cluster.create_namespace(namespace).await.unwrap();
    }
    cluster.apply(&rendered).await.unwrap();
    cluster.apply(&documents.map(|document| document.to_string()).join("\n---\n")).await.unwrap();
}

/// The administrator's file, acting for somebody else.
fn acting_for(cluster: &Cluster, user: &str, folder: &Path) -> PathBuf {
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"]["as"] = user.into();
    let path = folder.join(user);
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// The answer, as soon as the authorizer's cache has the bindings.
async fn settled(kubeconfig: &Path, command: &[&str], missing: &[&str]) -> (i32, String) {
    let end = std::time::Instant::now() + LIMIT;
    loop {
        let (code, said, _) = run(kubeconfig, command).await;
        for debugging in ["ApiError", "Status {", "Some("] {
            assert!(!said.contains(debugging), "{command:?}: {said}");
        }
        if !missing.iter().any(|part| said.contains(part)) {
            return (code, said);
        }
        assert!(std::time::Instant::now() < end, "{command:?}: {said}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_does_with_the_roles_of_the_chart() {
    let options = ClusterOptions { helm: true, ..ClusterOptions::scheduler_tier(1) };
    let cluster = Cluster::start(options).await.unwrap();
    install(&cluster).await;
    let folder = tempfile::tempdir().unwrap();

    // Who may read everything is told of nothing that is left out, and comes as far as the controller's node.
    let watcher = acting_for(&cluster, "watcher", folder.path());
    for command in OF_OBJECTS {
        let (code, said) = settled(&watcher, command, &["you may not", "cannot list"]).await;
        assert!(code == 0 || code == 1, "{command:?}: {said}");
    }
    for command in OF_FLEET {
        let (code, said) = settled(&watcher, command, &["you may not", "cannot list", "cannot get"]).await;
        assert!(code == 2 && said.contains("cannot forward a port to pod leader: "), "{command:?}: {said}");
        assert!(!said.contains("forbidden") && !said.contains("cannot create"), "{command:?}: {said}");
    }

    // Who may see a namespace gets an answer, with what it leaves out.
    let person = acting_for(&cluster, "person", folder.path());
    for command in OF_OBJECTS {
        let missing = ["and this command needs them", "nor in namespace team"];
        let command = [command, if command.contains(&TEAM) { &[] } else { &["-n", TEAM] }].concat();
        // Pools and quotas are of no namespace.
        let command = if ["pools", "quota"].contains(&command[0]) { vec![command[0]] } else { command };
        let (code, said) = settled(&person, &command, &missing).await;
        assert!(code == 0 || code == 1, "{command:?}: {said}");
        let leaves_out = ["explain", "allocate", "get", "topology", "defrag", "doctor"].contains(&command[0]);
        let is_of_claims = command[0] != "get" || command.contains(&"claims");
        if leaves_out && is_of_claims {
            assert!(said.contains("outside namespace team"), "{command:?}: {said}");
        }
    }
    for command in OF_FLEET {
        let (code, said) = settled(&person, command, &["and this command needs them"]).await;
        assert_eq!(code, 2, "{command:?}: {said}");
        for part in ["-fleet-viewer", "docs/kubectl-gpu.md", "cannot list resource \"leases\""] {
            assert!(said.contains(part), "{command:?}: {said}");
        }
    }

    // Who may do nothing is told which right is missing.
    let nobody = acting_for(&cluster, "nobody", folder.path());
    for command in OF_OBJECTS.into_iter().chain(OF_FLEET) {
        let (code, said) = settled(&nobody, command, &[]).await;
        assert_eq!(code, 2, "{command:?}: {said}");
        assert!(said.contains("User \"nobody\" cannot list resource"), "{command:?}: {said}");
        assert!(said.contains("docs/kubectl-gpu.md"), "{command:?}: {said}");
    }
}
