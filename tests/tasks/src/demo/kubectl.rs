//! kubectl and helm on the demo's cluster.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tessera_harness::{Cluster, ClusterError};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The cluster's kubeconfig, and programs using it.
pub struct Kubectl {
    kubeconfig: PathBuf,
    /// kubectl: a path, or a name to look up in `PATH`.
    program: PathBuf,
}

impl Kubectl {
    /// For a cluster started by the demo.
    ///
    /// # Errors
    /// The cluster was started without kubectl.
    pub fn of(cluster: &Cluster) -> Result<Self, ClusterError> {
        Ok(Self { kubeconfig: cluster.kubeconfig(), program: cluster.program("kubectl")? })
    }

    /// For an existing cluster, with the user's own kubectl.
    pub fn with(kubeconfig: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_owned(), program: "kubectl".into() }
    }

    /// Runs kubectl.
    ///
    /// # Errors
    /// kubectl is missing, or its own error.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        self.output(&self.program, arguments, "").await
    }

    /// Runs kubectl with this standard input.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub async fn run_with_input(&self, arguments: &[&str], input: &str) -> Result<String> {
        self.output(&self.program, arguments, input).await
    }

    /// Runs the user's helm.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub async fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.output(Path::new("helm"), arguments, "").await
    }

    async fn output(&self, program: &Path, arguments: &[&str], input: &str) -> Result<String> {
        let name = program.file_name().unwrap_or_default().display();
        let spawned = Command::new(program)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = match spawned {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("{name} is not in the PATH: the demo on a cluster of yours needs kubectl and helm")
            }
            spawned => spawned.with_context(|| format!("{name} cannot be started"))?,
        };
        if let Some(mut stdin) = child.stdin.take() {
            // kubectl may end before reading everything.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await?;
        if !output.status.success() {
            bail!("{name} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
