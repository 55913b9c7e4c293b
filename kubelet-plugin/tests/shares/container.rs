//! The view of a container with a claim, as far as CUDA programs look.

use std::path::PathBuf;

use serde_json::Value;

use crate::client::Client;
use crate::host::Host;

/// A claim's additions to a container.
pub struct Container {
    pub environment: Vec<(String, String)>,
    /// The host's directory mounted in the container at `/tmp/nvidia-mps`.
    pub pipe: Option<PathBuf>,
}

impl Container {
    /// A container with the first device of a spec.
    pub fn of(spec: &Value) -> Self {
        Self::with(spec, 0)
    }

    /// A container with one device of a spec.
    pub fn with(spec: &Value, device: usize) -> Self {
        let edits = &spec["devices"][device]["containerEdits"];
        let split = |variable: &Value| {
            let (name, value) = variable.as_str().unwrap().split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        let environment = edits["env"].as_array().unwrap().iter().map(split).collect();
        let mounts = edits["mounts"].as_array().cloned().unwrap_or_default();
        let pipe = mounts.iter().find(|mount| mount["containerPath"] == "/tmp/nvidia-mps");
        let pipe = pipe.map(|mount| PathBuf::from(mount["hostPath"].as_str().unwrap()));
        Self { environment, pipe }
    }

    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Starts a program in the container.
    pub fn run(&self, host: &Host) -> Client {
        self.run_on(host, 0)
    }

    /// Starts a program in the container, on the device with this number.
    pub fn run_on(&self, host: &Host, device: usize) -> Client {
        let kept = |(name, value): &'_ (String, String)| {
            (name != "CUDA_MPS_PIPE_DIRECTORY").then(|| (name.clone(), value.clone()))
        };
        let environment: Vec<(String, String)> = self.environment.iter().filter_map(kept).collect();
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let nowhere = PathBuf::from("/nowhere");
        Client::start_on(host, self.pipe.as_ref().unwrap_or(&nowhere), &environment, device)
    }
}
