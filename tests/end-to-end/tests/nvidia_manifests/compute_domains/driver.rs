//! NVIDIA's DRA driver, installed for compute domains alone: its own chart, and its own programs in an image with what
//! NVIDIA's has.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tessera_harness::{
    Cluster, Image,
    installation::{self, MACHINE},
    progress::Progress,
    scene::eventually,
    strangers::charts,
    tools::{Module, Tools},
    write_archive,
};

/// The name of its driver for compute domains.
pub const DRIVER: &str = "compute-domain.nvidia.com";
/// Labels of its pods.
pub const PLUGIN: &str = "dra-driver-nvidia-gpu-component=kubelet-plugin";
pub const CONTROLLER: &str = "dra-driver-nvidia-gpu-component=controller";

const REPOSITORY: &str = "tessera.test/dra-driver-nvidia-gpu";
const TAG: &str = "v0.5.0";
/// What Node Feature Discovery or the GPU Operator tell of a node with cards; its plugin runs on no other.
const HAS_CARDS: &str = "nvidia.com/gpu.present";
/// Its file in the form of `/proc/devices`, below the emulated machine.
const DEVICES: &str = "proc/devices-with-imex-channels";

/// Programs of this machine that the script of its init container and its containers' commands call.
const COMMANDS: [&str; 9] = ["bash", "basename", "date", "env", "find", "head", "ls", "ln", "sleep"];
const PROGRAMS: [&str; 3] =
    ["compute-domain-controller", "compute-domain-daemon", "compute-domain-kubelet-plugin"];
const TEMPLATES: [&str; 4] = [
    "compute-domain-daemon-claim-template.tmpl.yaml",
    "compute-domain-daemon-config.tmpl.cfg",
    "compute-domain-daemon.tmpl.yaml",
    "compute-domain-workload-claim-template.tmpl.yaml",
];

/// Installs it beside Tessera, into a namespace that exists, and waits for its controller.
pub async fn install(cluster: &Cluster, namespace: &str) {
    let archive = cluster.state().join("nvidia-dra-driver.tar");
    write_archive(&[image().await], &archive).unwrap();
    cluster.import_image(&archive).await.unwrap();

    // The emulated machine has no kernel module, so nothing has registered the channels' device number.
    let machine = installation::machine(cluster.node(0));
    let devices = fs::read_to_string(machine.join("proc/devices")).unwrap();
    let channels = "Character devices:\n234 nvidia-caps-imex-channels\n";
    let devices = devices.replacen("Character devices:\n", channels, 1);
    assert!(devices.starts_with(channels), "{devices}");
    fs::write(machine.join(DEVICES), devices).unwrap();

    let node = cluster.node(0).name();
    cluster.kubectl(&["label", "node", node, &format!("{HAS_CARDS}=true")]).await.unwrap();
    let chart = charts::NVIDIA_DRA_DRIVER.directory().unwrap().display().to_string();
    let values = [
        "resources.gpus.enabled=false".to_owned(),
        format!("nvidiaDriverRoot={MACHINE}"),
        format!("altProcDevices={MACHINE}/{DEVICES}"),
        format!("image.repository={REPOSITORY}"),
        format!("image.tag={TAG}"),
        "image.pullPolicy=Never".to_owned(),
    ];
    let mut arguments = vec!["install", "nvidia", &chart, "--namespace", namespace];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    cluster.helm(&arguments).await.unwrap();
    ready(cluster, namespace, CONTROLLER).await;
}

/// Removes it, but for what helm and its programs leave.
pub async fn uninstall(cluster: &Cluster, namespace: &str) {
    cluster.helm(&["uninstall", "nvidia", "--namespace", namespace]).await.unwrap();
    let node = cluster.node(0).name();
    cluster.kubectl(&["label", "node", node, &format!("{HAS_CARDS}-")]).await.unwrap();
    let kinds = ["computedomains", "computedomaincliques"].map(|kind| format!("{kind}.resource.nvidia.com"));
    cluster.kubectl(&["delete", "crd", &kinds[0], &kinds[1]]).await.unwrap();
}

/// Waits until the only pod with these labels is ready, and returns its name.
pub async fn ready(cluster: &Cluster, namespace: &str, labels: &str) -> String {
    eventually(&format!("a ready pod with {labels}"), async || {
        let arguments = ["get", "pods", "-n", namespace, "-l", labels, "-o", "json"];
        let pods: Value = serde_json::from_str(&cluster.kubectl(&arguments).await.unwrap()).unwrap();
        let [pod] = pods["items"].as_array()?.as_slice() else { return None };
        let mut conditions = pod["status"]["conditions"].as_array()?.iter();
        let is_ready =
            conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        (is_ready && pod["metadata"]["deletionTimestamp"].is_null())
            .then(|| pod["metadata"]["name"].as_str().unwrap().to_owned())
    })
    .await
}

/// The claims that it has recorded on the node, by UID, with how far each is.
pub fn recorded(cluster: &Cluster) -> BTreeMap<String, String> {
    let path = cluster.node(0).plugins_directory().join(DRIVER).join("checkpoint.json");
    let record: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let claims = record["v2"]["preparedClaims"].as_object().cloned().unwrap_or_default();
    let state = |claim: Value| claim["checkpointState"].as_str().unwrap().to_owned();
    claims.into_iter().map(|(uid, claim)| (uid, state(claim))).collect()
}

async fn image() -> Image {
    let modules = [Module::NvidiaDraDriver, Module::NvidiaContainerToolkit];
    let tools = Tools::build_in_background(&modules, &Progress::default()).await.unwrap();
    let built = |name: &str| tools.path(Module::NvidiaDraDriver, name).unwrap();
    let hook = tools.path(Module::NvidiaContainerToolkit, "nvidia-cdi-hook").unwrap();
    let mut image = Image::new(format!("{REPOSITORY}:{TAG}"))
        .binary("/usr/bin/nvidia-cdi-hook", &hook)
        .unwrap()
        .file("/usr/bin/kubelet-plugin-prestart.sh", &built("kubelet-plugin-prestart.sh"), 0o755)
        .unwrap();
    for program in PROGRAMS {
        image = image.binary(&format!("/usr/bin/{program}"), &built(program)).unwrap();
    }
    for command in COMMANDS {
        image = image.binary(&format!("/usr/bin/{command}"), &of_this_machine(command)).unwrap();
    }
    for template in TEMPLATES {
        image = image.file(&format!("/templates/{template}"), &built(template), 0o644).unwrap();
    }
    image
}

fn of_this_machine(command: &str) -> PathBuf {
    let folders = env::var_os("PATH").unwrap();
    let mut places = env::split_paths(&folders).map(|folder| folder.join(command));
    places.find(|path| Path::is_file(path)).unwrap_or_else(|| panic!("{command} is not in PATH"))
}
