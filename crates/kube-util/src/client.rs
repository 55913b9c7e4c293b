//! The connection to the API server.

use std::path::{Path, PathBuf};

use kube::{
    Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

/// No API server is configured.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// No kubeconfig was given, and this is not a pod.
    #[error("no Kubernetes client: this is no pod with a service account token, so give --kubeconfig a file")]
    NoServiceAccount(#[from] InClusterError),
    /// The kubeconfig cannot be read.
    #[error("cannot read the kubeconfig {}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error.
        source: KubeconfigError,
    },
    /// The kubeconfig is not usable.
    #[error("cannot use the kubeconfig {}", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The error.
        source: KubeconfigError,
    },
}

/// Reads the API server's address and our credentials; does not connect.
///
/// # Errors
/// When the kubeconfig can't be read or used, or there is neither a kubeconfig nor a service account.
pub async fn configuration(kubeconfig: Option<&Path>) -> Result<Config, ConfigurationError> {
    let Some(path) = kubeconfig.filter(|path| !path.as_os_str().is_empty()) else {
        return Ok(Config::incluster()?);
    };
    let file = Kubeconfig::read_from(path)
        .map_err(|source| ConfigurationError::Unreadable { path: path.to_owned(), source })?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(|source| ConfigurationError::Unusable { path: path.to_owned(), source })
}
