use std::{path::Path, process::Stdio};

use tokio::{io::AsyncWriteExt, process::Command};

use super::{Cluster, ClusterError};
use crate::tools::Module;

/// Result of kubectl or helm.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// Whether the exit code is 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Cluster {
    /// Runs kubectl as administrator and returns its standard output.
    ///
    /// # Errors
    /// [`ClusterError::Command`] with kubectl's output, on failure.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, ClusterError> {
        self.checked("kubectl", arguments, None).await
    }

    /// Runs kubectl with this standard input, for `-f -`.
    ///
    /// # Errors
    /// [`ClusterError::Command`] with kubectl's output, on failure.
    pub async fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<String, ClusterError> {
        self.checked("kubectl", arguments, Some(input)).await
    }

    /// Runs kubectl and returns its result, also on failure.
    ///
    /// # Errors
    /// kubectl cannot be started.
    pub async fn try_kubectl(&self, arguments: &[&str]) -> Result<CommandOutput, ClusterError> {
        self.command("kubectl", arguments, None).await
    }

    /// Applies YAML or JSON with one or more documents, as server-side apply.
    ///
    /// # Errors
    /// [`ClusterError::Command`] with kubectl's output, on failure.
    pub async fn apply(&self, manifests: &str) -> Result<String, ClusterError> {
        self.kubectl_with_input(&["apply", "--server-side", "-f", "-"], manifests).await
    }

    /// Runs helm as administrator and returns its standard output. Its caches and settings are in the cluster's
    /// directory.
    ///
    /// # Errors
    /// [`ClusterError::Command`] with helm's output, on failure; the cluster must have been started with
    /// [`super::ClusterOptions::helm`].
    pub async fn helm(&self, arguments: &[&str]) -> Result<String, ClusterError> {
        self.checked("helm", arguments, None).await
    }

    /// Path of a program for use on this machine: kubectl, helm, ctr.
    ///
    /// # Errors
    /// The cluster was started without the program.
    pub fn program(&self, name: &str) -> Result<std::path::PathBuf, ClusterError> {
        let module = match name {
            "helm" => Module::Helm,
            "ctr" => Module::Containerd,
            _ => Module::Kubernetes,
        };
        Ok(self.record.tools.path(module, name)?)
    }

    async fn checked(
        &self,
        program: &str,
        arguments: &[&str],
        input: Option<&str>,
    ) -> Result<String, ClusterError> {
        let output = self.command(program, arguments, input).await?;
        if output.success {
            return Ok(output.stdout);
        }
        Err(ClusterError::Command {
            command: format!("{program} {}", arguments.join(" ")),
            exit: "it says".to_owned(),
            output: format!("{}{}", output.stderr, output.stdout),
        })
    }

    async fn command(
        &self,
        program: &str,
        arguments: &[&str],
        input: Option<&str>,
    ) -> Result<CommandOutput, ClusterError> {
        let path = self.program(program)?;
        let mut child = Command::new(&path)
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOME", self.own_folder("home")?)
            .env_remove("XDG_CACHE_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_DATA_HOME")
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(ClusterError::io(&path))?;
        let stdin = child.stdin.take();
        let feed = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // The program may end before reading everything.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let (output, ()) = tokio::join!(child.wait_with_output(), feed);
        let output = output.map_err(ClusterError::io(&path))?;
        Ok(CommandOutput {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    fn own_folder(&self, name: &str) -> Result<std::path::PathBuf, ClusterError> {
        let path = self.state().join(name);
        std::fs::create_dir_all(&path).map_err(ClusterError::io(Path::new(&path)))?;
        Ok(path)
    }
}
