//! Charts of others: their Go modules have them beside the code.

use std::path::PathBuf;

use serde::Deserialize;

use crate::tools::{ToolError, go};

/// A chart in a Go module.
#[derive(Clone, Copy, Debug)]
pub struct Chart {
    /// The module with its version.
    pub module: &'static str,
    /// Its checksum, as in a go.sum.
    sum: &'static str,
    /// The chart's folder in the module.
    folder: &'static str,
}

/// NVIDIA's DRA driver.
pub const NVIDIA_DRA_DRIVER: Chart = Chart {
    module: "sigs.k8s.io/dra-driver-nvidia-gpu@v0.5.0",
    sum: "h1:CjUBJwemlt4kYy5AN+I7Ce4mMp9V4VKR97EBogSoDus=",
    folder: "deployments/helm/dra-driver-nvidia-gpu",
};

/// NVIDIA's device plugin.
pub const NVIDIA_DEVICE_PLUGIN: Chart = Chart {
    module: "github.com/NVIDIA/k8s-device-plugin@v0.19.0",
    sum: "h1:3JBGCsq0moOtpqyYHpevGZNcPKmIJeTiL7qSQ/rC71Q=",
    folder: "deployments/helm/nvidia-device-plugin",
};

/// Output of `go mod download -json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    dir: PathBuf,
    sum: String,
}

impl Chart {
    /// The chart's directory, in Go's module cache; downloaded the first time.
    ///
    /// # Errors
    /// [`ToolError::NoGo`], and [`ToolError::Build`] where the module is unavailable or has another checksum.
    pub fn directory(&self) -> Result<PathBuf, ToolError> {
        let failed = |output: String| ToolError::Build { tool: self.module.to_owned(), output };
        // The checksum is known, so Go need not query the checksum database.
        let output = go()
            .current_dir(std::env::temp_dir())
            .env("GOSUMDB", "off")
            .args(["mod", "download", "-json", self.module])
            .output()
            .map_err(ToolError::NoGo)?;
        if !output.status.success() {
            return Err(failed(
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
            ));
        }
        let downloaded: Downloaded =
            serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
        if downloaded.sum != self.sum {
            return Err(failed(format!("its checksum is {}, not {}", downloaded.sum, self.sum)));
        }
        Ok(downloaded.dir.join(self.folder))
    }
}
