//! NVIDIA's driver for compute domains on a node with Tessera, one beside the other: their slices, claims and files.
//!
//! What cannot be had is its IMEX daemon, which is proprietary. The node's cards are in no NVLink domain of several nodes, so the driver
//! starts none, and a channel is no device node.

mod driver;

use std::{collections::BTreeMap, fs, time::Duration};

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, api::ListParams};
use serde_json::Value;
use tessera_harness::{
    Node,
    installation::{self, PLUGIN_SELECTOR},
    scene::{eventually, in_namespace},
};
use tokio::time::{Instant, sleep_until};

use crate::{
    dcgm::joined,
    stage::{self, Scene, Stage, on_stage},
};

/// The namespaces of NVIDIA's driver, and of those who have cards and a channel.
const THEIRS: &str = "nvidia-dra-driver-gpu";
const USERS: &str = "compute-domain";

/// The label by which its plugin asks for a daemon on the node.
const LABEL: &str = "resource.nvidia.com/computeDomain";

/// Longer than the interval at which Tessera looks for others who own the cards.
const LOOKED: Duration = Duration::from_secs(35);

#[tokio::test(flavor = "multi_thread")]
async fn nvidias_compute_domains_beside_tesseras_cards() {
    on_stage(THEIRS, async |theirs: Scene| {
        let stage = theirs.stage;
        let ours = uids(stage, stage::DRIVER).await;
        assert!(!ours.is_empty());
        driver::install(&stage.cluster, THEIRS).await;
        let side_by_side = eventually("slices of both drivers", async || {
            let both = (uids(stage, stage::DRIVER).await, uids(stage, driver::DRIVER).await);
            (!both.1.is_empty()).then_some(both)
        })
        .await;
        assert_eq!(side_by_side.0, ours);
        let registered = Instant::now();
        assert_eq!(their_devices(stage).await, ["channel-0", "daemon-0"]);

        in_namespace(&stage.cluster, USERS, async {
            let users = Scene { stage, namespace: USERS.to_owned() };
            users.apply("compute-domain").await;
            a_pod_has_both(&users).await;
            each_starts_anew(stage).await;
            assert_eq!((uids(stage, stage::DRIVER).await, uids(stage, driver::DRIVER).await), side_by_side);
            nothing_is_left(&users).await;
        })
        .await
        .unwrap();

        sleep_until(registered + LOOKED).await;
        nobody_is_taken_for_an_owner(stage).await;
        driver::uninstall(&stage.cluster, THEIRS).await;
        eventually("the kubelet to remove the slices of a driver that is gone", async || {
            uids(stage, driver::DRIVER).await.is_empty().then_some(())
        })
        .await;
        assert_eq!(uids(stage, stage::DRIVER).await, ours);
    })
    .await;
}

/// A pod has two cards and a channel, each claim prepared by its driver; the domain's daemon has a claim of its own.
async fn a_pod_has_both(users: &Scene) {
    let stage = users.stage;
    let seen = users.view("pod", "ctr").await;
    let cards = seen.uuids("GPU-");
    assert_eq!(cards.len(), 2);
    assert!(!seen.devices.iter().any(|node| node.path.contains("imex")), "{seen:?}");
    let of_dcgm: Vec<String> = joined(users).await.into_iter().map(|joined| joined.card).collect();
    assert_eq!(of_dcgm, Vec::from_iter(cards), "a channel is no card of dcgm-exporter's");

    let domain = domain(users).await;
    assert_eq!(domain["status"]["status"], "Ready", "{domain}");
    assert_eq!(label(stage).await.as_deref(), domain["metadata"]["uid"].as_str());
    let pods = format!("{LABEL}={}", label(stage).await.unwrap());
    driver::ready(&stage.cluster, THEIRS, &pods).await;

    let (gpus, channel) = (claim(users, "pod-gpus-").await, claim(users, "pod-channel-").await);
    let daemon = claim(&Scene { stage, namespace: THEIRS.to_owned() }, "computedomain-daemon-").await;
    let devices = |claim: &ResourceClaim| -> Vec<(String, String)> {
        let allocation = claim.status.clone().and_then(|status| status.allocation?.devices);
        let results = allocation.and_then(|devices| devices.results).unwrap_or_default();
        results.into_iter().map(|result| (result.driver, result.device)).collect()
    };
    assert!(devices(&gpus).iter().all(|(driver, _)| driver == stage::DRIVER), "{gpus:?}");
    assert_eq!(devices(&channel), [(driver::DRIVER.to_owned(), "channel-0".to_owned())]);
    assert_eq!(devices(&daemon), [(driver::DRIVER.to_owned(), "daemon-0".to_owned())]);
    let done = |claim: &ResourceClaim| (uid(claim), "PrepareCompleted".to_owned());
    assert_eq!(driver::recorded(&stage.cluster), BTreeMap::from([done(&channel), done(&daemon)]));
    let node = stage.cluster.node(0);
    for (claim, prefix) in [(&gpus, "gpu.nvidia.com-"), (&daemon, "k8s.compute-domain.nvidia.com-")] {
        let specs = specs(node, &uid(claim));
        assert!(!specs.is_empty() && specs.iter().all(|name| name.starts_with(prefix)), "{specs:?}");
    }
}

/// Each plugin starts anew beside the other, and finds its slices and claims as they were.
async fn each_starts_anew(stage: &Stage) {
    for (namespace, labels) in [(installation::NAMESPACE, PLUGIN_SELECTOR), (THEIRS, driver::PLUGIN)] {
        let before = driver::ready(&stage.cluster, namespace, labels).await;
        stage.cluster.delete_pod(namespace, &before).await.unwrap();
        assert_ne!(driver::ready(&stage.cluster, namespace, labels).await, before);
    }
}

/// When the domain's only pod is deleted, claims, records, CDI specs, label and daemon go; when the domain is, the rest.
async fn nothing_is_left(users: &Scene) {
    let (stage, cluster) = (users.stage, &users.stage.cluster);
    let daemons = Scene { stage, namespace: THEIRS.to_owned() };
    let uids: Vec<String> = claims(users).await.iter().chain(&claims(&daemons).await).map(uid).collect();
    assert_eq!(uids.len(), 3);
    cluster.delete_pod(USERS, "pod").await.unwrap();
    eventually("both drivers to take back all claims", async || {
        let specs: Vec<String> = uids.iter().flat_map(|uid| specs(cluster.node(0), uid)).collect();
        let gone = claims(users).await.is_empty()
            && claims(&daemons).await.is_empty()
            && driver::recorded(cluster).is_empty()
            && specs.is_empty()
            && label(stage).await.is_none();
        gone.then_some(())
    })
    .await;
    cluster.kubectl(&["delete", "computedomain", "domain", "-n", USERS]).await.unwrap();
    let get = ["get", "daemonsets,resourceclaimtemplates", "-A", "-l", LABEL, "-o", "name"];
    assert_eq!(cluster.kubectl(&get).await.unwrap(), "");
}

/// Tessera told nobody that the cards have another owner.
async fn nobody_is_taken_for_an_owner(stage: &Stage) {
    let events = stage.cluster.kubectl(&["get", "events", "-A", "-o", "json"]).await.unwrap();
    let events: Value = serde_json::from_str(&events).unwrap();
    let events = events["items"].as_array().unwrap();
    assert!(
        events.iter().any(|event| event["involvedObject"]["kind"] == "Node"),
        "those of nodes are listed"
    );
    let told = |event: &&Value| {
        let reason = event["reason"].as_str().unwrap_or_default();
        ["CardsOwnedByOthers", "AnotherDriver"].contains(&reason)
    };
    assert_eq!(events.iter().filter(told).map(|event| &event["message"]).collect::<Vec<_>>(), [""; 0]);
}

/// The slices of a driver by name, with their UIDs: one that was deleted and made anew has another.
async fn uids(stage: &Stage, driver: &str) -> BTreeMap<String, String> {
    let slices = stage.slices(driver).await.into_iter().map(|slice| slice.metadata);
    slices.map(|metadata| (metadata.name.unwrap(), metadata.uid.unwrap())).collect()
}

async fn their_devices(stage: &Stage) -> Vec<String> {
    let slices = stage.slices(driver::DRIVER).await;
    let devices = slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
    let mut names: Vec<String> = devices.map(|device| device.name).collect();
    names.sort();
    names
}

async fn domain(users: &Scene) -> Value {
    let get = ["get", "computedomain", "domain", "-n", &users.namespace, "-o", "json"];
    serde_json::from_str(&users.stage.cluster.kubectl(&get).await.unwrap()).unwrap()
}

/// The domain that has the node, by its UID.
async fn label(stage: &Stage) -> Option<String> {
    let node = ["get", "node", stage.cluster.node(0).name(), "-o", "json"];
    let node: Value = serde_json::from_str(&stage.cluster.kubectl(&node).await.unwrap()).unwrap();
    node["metadata"]["labels"][LABEL].as_str().map(str::to_owned)
}

async fn claims(scene: &Scene) -> Vec<ResourceClaim> {
    let claims: Api<ResourceClaim> = Api::namespaced(scene.stage.client().await, &scene.namespace);
    claims.list(&ListParams::default()).await.unwrap().items
}

/// The only claim whose name begins so.
async fn claim(scene: &Scene, prefix: &str) -> ResourceClaim {
    let name = |claim: &ResourceClaim| claim.metadata.name.clone().unwrap();
    let mut claims = claims(scene).await;
    claims.retain(|claim| name(claim).starts_with(prefix));
    let [claim] = <[_; 1]>::try_from(claims).unwrap();
    claim
}

fn uid(claim: &ResourceClaim) -> String {
    claim.metadata.uid.clone().unwrap()
}

/// The names of the node's CDI specs that name a claim.
fn specs(node: &Node, uid: &str) -> Vec<String> {
    let files = fs::read_dir(node.cdi_directory()).unwrap().map(|file| file.unwrap());
    // Others' claims come and go meanwhile.
    let texts = files.filter_map(|file| {
        Some((file.file_name().into_string().ok()?, fs::read_to_string(file.path()).ok()?))
    });
    texts.filter(|(name, text)| name.contains(uid) || text.contains(uid)).map(|(name, _)| name).collect()
}
