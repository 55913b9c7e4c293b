//! The connection to the API server.

use std::path::{Path, PathBuf};

use kube::{
    Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

/// There is no API server to talk to.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// No kubeconfig was named, and this is no pod.
    #[error("no Kubernetes client: this is no pod with a service account token, so give --kubeconfig a file")]
    NoServiceAccount(#[from] InClusterError),
    /// The kubeconfig cannot be read.
    #[error("cannot read the kubeconfig {}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KubeconfigError,
    },
    /// The kubeconfig says nothing that can be used.
    #[error("cannot use the kubeconfig {}", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KubeconfigError,
    },
}

/// Reads where the API server is and who we are; does not connect.
///
/// # Errors
/// When the kubeconfig can't be read or used, or there is none and no service account either.
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
