//! Pods that use a card like CUDA programs.

use serde::Deserialize;
use serde_json::{Value, json};
use tessera_harness::{CUDA_SAMPLE_IMAGE, CommandOutput, installation::MACHINE};

use crate::stage::{Scene, container, eventually};

/// A program's report about its device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CudaDevice {
    /// UUID of a card or a partition.
    pub device: String,
    /// Process id of its MPS server.
    pub mps_server: Option<u32>,
    #[serde(rename = "memoryLimitMiB")]
    pub memory_limit_mib: Option<u64>,
    pub active_thread_percentage: f64,
    pub multiprocessors: Option<u32>,
}

/// A container that runs `cuda-sample` with these arguments. Of the node it sees what its claims grant, and the directory
/// of the emulated machine, which takes the place of a kernel with a driver.
pub fn program(name: &str, claims: &[&str], arguments: &[&str]) -> Value {
    let mut container = container(name, claims);
    container["image"] = json!(CUDA_SAMPLE_IMAGE);
    container["command"] = json!([&["/usr/bin/cuda-sample"], arguments].concat());
    container["env"] = json!([{"name": "GPU_EMULATOR_MACHINE", "value": MACHINE}]);
    container["volumeMounts"] = json!([{"name": "machine", "mountPath": MACHINE}]);
    container
}

impl Scene {
    /// Creates a pod of such containers; `claims` are its `spec.resourceClaims`.
    pub async fn program_pod(&self, name: &str, restart: &str, containers: &[Value], claims: &[Value]) {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"restartPolicy": restart, "terminationGracePeriodSeconds": 1,
                "volumes": [{"name": "machine", "hostPath": {"path": MACHINE}}],
                "containers": containers, "resourceClaims": claims},
        }))
        .await;
    }

    /// Creates a pod with one such container `main` and one claim from the template `template`.
    pub async fn program_from_template(&self, name: &str, template: &str, arguments: &[&str]) {
        let claim = json!({"name": "card", "resourceClaimTemplateName": template});
        self.program_pod(name, "Never", &[program("main", &["card"], arguments)], &[claim]).await;
    }

    /// The devices of the first `count` processes of a container.
    pub async fn devices_of(&self, pod: &str, container: &str, count: usize) -> Vec<CudaDevice> {
        eventually(&format!("{count} programs of {pod}/{container} to have a device"), async || {
            let log = self.log(pod, container).await?;
            let devices: Vec<CudaDevice> =
                log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            (devices.len() >= count).then_some(devices)
        })
        .await
    }

    /// The device of the program in the container `main` of a pod.
    pub async fn device_of(&self, pod: &str) -> CudaDevice {
        self.devices_of(pod, "main", 1).await.remove(0)
    }

    /// Waits until a container has logged this.
    pub async fn says(&self, pod: &str, container: &str, text: &str) {
        eventually(&format!("{pod}/{container} to say {text}"), async || {
            self.log(pod, container).await?.contains(text).then_some(())
        })
        .await;
    }

    async fn log(&self, pod: &str, container: &str) -> Option<String> {
        self.stage.cluster.logs_of(&self.namespace, pod, Some(container)).await.ok()
    }

    /// Runs one more program in a container: this command, or `cuda-sample` if it is empty.
    pub async fn run_in(&self, pod: &str, container: &str, words: &[&str]) -> CommandOutput {
        let sample = ["/usr/bin/cuda-sample"];
        let words = if words.first().is_some_and(|word| word.starts_with('/')) {
            words.to_vec()
        } else {
            [&sample, words].concat()
        };
        let arguments = ["exec", "-n", &self.namespace, pod, "-c", container, "--"];
        self.stage.cluster.try_kubectl(&[&arguments, words.as_slice()].concat()).await.unwrap()
    }

    /// The device of one more program in a container.
    pub async fn another_in(&self, pod: &str, container: &str, words: &[&str]) -> CudaDevice {
        let output = self.run_in(pod, container, words).await;
        let first = output.stdout.lines().next().unwrap_or_default();
        serde_json::from_str(first).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// The environment of a container.
    pub async fn environment_of(&self, pod: &str, container: &str) -> Value {
        let output = self.run_in(pod, container, &["/bin/env"]).await;
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}
