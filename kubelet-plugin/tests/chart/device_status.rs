//! The plugin's writes to `status.devices` of claims, with the chart's rights: its own program on an
//! emulated machine, beside a real API server.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::{Value, json};
use tessera_fakes::machine::EmulatedMachine;
use tessera_harness::kubelet_stand_in::{Claim, KubeletStandIn, Plugin};
use tokio::time::{Duration, Instant, sleep};

use crate::support::{LONG, chart, cluster, connect};

const NAMESPACE: &str = "device-status";
const DRIVER: &str = "status.example.com";
/// A driver of something else in the same claim.
const NIC: &str = "nic.example.com";
const NODE: &str = "status-a";
const MANAGER: &str = "status.example.com/kubelet-plugin";

/// The plugin's process; ends with this.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A token of the plugin's pod on the node.
async fn token(administrator: &Client, node: &str) -> Kubeconfig {
    let pods: Api<Pod> = Api::namespaced(administrator.clone(), NAMESPACE);
    let name = format!("plugin-{node}");
    let account = "status-tessera-kubelet-plugin";
    let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "serviceAccountName": account,
        "containers": [{"name": "c", "image": "i"}]}});
    let pod = serde_json::from_value(pod).expect("a pod");
    let pod = pods.create(&PostParams::default(), &pod).await.expect("created");
    let uid = pod.metadata.uid.expect("a uid");
    cluster().await.service_account_config(NAMESPACE, account, Some((&name, &uid))).await.expect("a token")
}

/// A claim with devices of both drivers, allocated on the node as by kube-scheduler.
async fn allocated(administrator: &Client, name: &str, node: &str, device: &str) -> Claim {
    let claims: Api<ResourceClaim> = Api::namespaced(administrator.clone(), NAMESPACE);
    let request = |name: &str| json!({"name": name, "exactly": {"deviceClassName": "any"}});
    let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request("gpu"), request("nic")]}}});
    let claim = serde_json::from_value(claim).expect("a claim");
    let made = claims.create(&PostParams::default(), &claim).await.expect("created");
    let result = |request: &str, driver: &str, device: &str| json!({"request": request, "driver": driver, "pool": format!("{driver}/{node}"), "device": device});
    let status = json!({"status": {"allocation": {
        "devices": {"results": [result("gpu", DRIVER, device), result("nic", NIC, "nic-0")]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [node]}]}]}}}});
    claims.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("allocated");
    Claim { namespace: NAMESPACE.to_owned(), name: name.to_owned(), uid: made.metadata.uid.expect("a uid") }
}

fn start(kubeconfig: &Path, machine: &EmulatedMachine, directory: &Path) -> Process {
    let root = machine.root();
    let path = |path: &Path| path.display().to_string();
    let options = [
        ("--node-name", NODE.to_owned()),
        ("--driver-name", DRIVER.to_owned()),
        ("--kubeconfig", path(kubeconfig)),
        ("--kubelet-directory", path(&directory.join("k"))),
        ("--cdi-directory", path(&directory.join("cdi"))),
        ("--driver-root", path(&root)),
        ("--sysfs-root", path(&root.join("sys"))),
        ("--proc-root", path(&root.join("proc"))),
        ("--http-address", "127.0.0.1:0".to_owned()),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubelet-plugin"));
    for (option, value) in options {
        command.args([option, &value]);
    }
    let log = File::create(directory.join("log")).expect("a log");
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Process(command.spawn().expect("started"))
}

fn smi(machine: &EmulatedMachine, arguments: &[&str]) {
    let output = Command::new(machine.root().join("bin/nvidia-smi")).args(arguments).output().expect("runs");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

async fn prepare(plugin: &Plugin, claim: &Claim) -> Result<(), String> {
    let mut answers = plugin.prepare(std::slice::from_ref(claim)).await.expect("an answer");
    answers.remove(&claim.uid).expect("of the claim").map(drop)
}

/// The entries of a claim, by driver: device, and status, reason and message of the only condition.
async fn told(client: &Client, claim: &Claim) -> Vec<[String; 5]> {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let found = claims.get(&claim.name).await.expect("there");
    let entries = found.status.and_then(|status| status.devices).unwrap_or_default();
    let mut told: Vec<[String; 5]> = Vec::new();
    for entry in entries {
        let condition = entry.conditions.expect("conditions").remove(0);
        told.push([entry.driver, entry.device, condition.status, condition.reason, condition.message]);
    }
    told.sort();
    told
}

/// Waits until both drivers' entries are as wanted: status and reason of ours.
async fn until(client: &Client, claim: &Claim, device: &str, expected: [&str; 2], log: &Path) -> String {
    let begin = Instant::now();
    loop {
        let now = told(client, claim).await;
        if let [nic, [driver, name, status, reason, message]] = &now[..]
            && [status, reason] == expected
        {
            assert_eq!((&*nic[0], &*nic[3]), (NIC, "Up"), "the other driver's stays");
            assert_eq!((&**driver, &**name), (DRIVER, device));
            return message.clone();
        }
        let log = || std::fs::read_to_string(log).expect("a log");
        assert!(begin.elapsed() < LONG, "{now:?} instead of {expected:?}: {}", log());
        sleep(Duration::from_millis(50)).await;
    }
}

/// As written by a driver.
fn entry(claim: &Claim, driver: &str, node: &str, device: &str, reason: &str) -> Patch<Value> {
    let condition = json!({"type": "Ready", "status": "True", "reason": reason, "message": "",
        "lastTransitionTime": "2026-11-23T00:00:00Z"});
    Patch::Apply(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": claim.name, "uid": claim.uid},
        "status": {"devices": [{"driver": driver, "pool": format!("{driver}/{node}"), "device": device,
            "conditions": [condition]}]}}))
}

#[tokio::test]
async fn a_device_that_cannot_be_prepared_says_so_with_the_rights_of_the_chart() {
    let cluster = cluster().await;
    let values = format!("driverName={DRIVER},controller.enabled=false,crds.install=false");
    let chart = chart();
    let install =
        ["install", "status", &chart, "--namespace", NAMESPACE, "--create-namespace", "--set", &values];
    cluster.helm(&install).await.expect("installed");
    for node in [NODE, "status-b"] {
        cluster.add_node_object(node).await.expect("a node");
    }
    let administrator = cluster.client().await.expect("a client");
    let directory = tempfile::Builder::new().prefix("s").tempdir_in("/tmp").expect("a directory");
    let kubeconfig = directory.path().join("kubeconfig");
    let token = token(&administrator, NODE).await;
    std::fs::write(&kubeconfig, serde_json::to_string(&token).expect("JSON")).expect("written");

    let machine = EmulatedMachine::with("hgx-h100-80gb", &["--cards", "1"]);
    let address = machine.cards()[0]["pci"].as_str().expect("an address").to_owned();
    let card = address.trim_start_matches("0000:").trim_end_matches(".0").replace(':', "-");
    let device = format!("gpu-{card}-mig-1g10gb-5");
    smi(&machine, &["-i", "0", "-mig", "1"]);
    smi(&machine, &["mig", "-i", "0", "-cgi", "3g.40gb:4"]);

    let process = start(&kubeconfig, &machine, directory.path());
    let stand_in = KubeletStandIn::new(&directory.path().join("k"));
    let plugin = stand_in.register(DRIVER, LONG).await.expect("registered");
    let claim = allocated(&administrator, "a", NODE, &device).await;
    let claims: Api<ResourceClaim> = Api::namespaced(administrator.clone(), NAMESPACE);
    let apply = PatchParams::apply("nic").force();
    claims
        .patch_status("a", &apply, &entry(&claim, NIC, NODE, "nic-0", "Up"))
        .await
        .expect("the other driver's");

    let log = directory.path().join("log");
    let error = prepare(&plugin, &claim).await.expect_err("something is in the way");
    let message = until(&administrator, &claim, &device, ["False", "ForeignInstance"], &log).await;
    assert!(message.contains("3g.40gb at 4") && error.contains(&message), "{message}: {error}");
    smi(&machine, &["mig", "-i", "0", "-dgi"]);
    prepare(&plugin, &claim).await.expect("nothing is in the way");
    until(&administrator, &claim, &device, ["True", "Prepared"], &log).await;
    drop(process);

    // Everything else is denied.
    let own: Api<ResourceClaim> = Api::namespaced(connect(token).await, NAMESPACE);
    let apply = PatchParams::apply(MANAGER).force();
    own.patch_status("a", &apply, &entry(&claim, DRIVER, NODE, &device, "Test")).await.expect("its own");
    let role =
        json!([{"op": "replace", "path": "/rules/2/verbs", "value": ["associated-node:update"]}]).to_string();
    let clusterrole = "device-status-status-tessera-kubelet-plugin";
    let patch = ["patch", "clusterrole", clusterrole, "--type=json", "-p"];
    let rule =
        ["get", "clusterrole", clusterrole, "-o", "jsonpath={.rules[2].resources[0]} {.rules[2].verbs[0]}"];
    assert_eq!(cluster.kubectl(&rule).await.expect("read"), "resourceclaims/driver associated-node:patch");
    cluster.kubectl(&[&patch[..], &[&role]].concat()).await.expect("the right is taken away");
    let begin = Instant::now();
    // A patch without a change is permitted to everybody: each try has a reason of its own.
    let mut tries = (0..).map(|number| entry(&claim, DRIVER, NODE, &device, &format!("Without{number}")));
    while own.patch_status("a", &apply, &tries.next().expect("no end")).await.is_ok() {
        assert!(begin.elapsed() < LONG, "it may write without the right");
        sleep(Duration::from_millis(50)).await;
    }
    let role = role.replace("associated-node:update", "associated-node:patch");
    cluster.kubectl(&[&patch[..], &[&role]].concat()).await.expect("the right is given back");
    while own.patch_status("a", &apply, &entry(&claim, DRIVER, NODE, &device, "Again")).await.is_err() {
        assert!(begin.elapsed() < LONG, "it may not write with the right");
        sleep(Duration::from_millis(50)).await;
    }
    let elsewhere = allocated(&administrator, "b", "status-b", "gpu-01-00").await;
    for (what, claim, patch) in [
        ("another driver's", &claim, entry(&claim, NIC, NODE, "nic-0", "Down")),
        ("another node's", &elsewhere, entry(&elsewhere, DRIVER, "status-b", "gpu-01-00", "Test")),
        ("the allocation", &claim, Patch::Merge(json!({"status": {"allocation": null, "devices": null}}))),
        (
            "the reservation",
            &claim,
            Patch::Merge(json!({"status": {"reservedFor": [
            {"resource": "pods", "name": "p", "uid": "u"}]}})),
        ),
    ] {
        let apply = match patch {
            Patch::Apply(_) => &apply,
            _ => &PatchParams::default(),
        };
        let refused = own.patch_status(&claim.name, apply, &patch).await.expect_err(what).to_string();
        assert!(refused.contains("Forbidden: changing status."), "{what}: {refused}");
    }
    // Another claim with the same name, and a claim changed since the read: both are preconditions.
    let replaced = Claim { uid: "00000000-0000-0000-0000-000000000000".to_owned(), ..claim.clone() };
    let refused = own.patch_status("a", &apply, &entry(&replaced, DRIVER, NODE, &device, "Other")).await;
    assert!(refused.expect_err("another uid").to_string().contains("metadata.uid"));
    let Patch::Apply(mut changed) = entry(&claim, DRIVER, NODE, &device, "Other") else { unreachable!() };
    changed["metadata"]["resourceVersion"] = json!("1");
    let refused = own.patch_status("a", &apply, &Patch::Apply(changed)).await.expect_err("an old version");
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 409), "{refused}");

    cluster.helm(&["uninstall", "status", "--namespace", NAMESPACE, "--wait"]).await.expect("uninstalled");
}
