//! The connection to the API server.

use std::path::{Path, PathBuf};

use kube::{
    Client, Config,
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

/// A client without repetition of requests.
///
/// kube's own repeats a request up to 15 times after a 429, 503 or 504. After a successful write answered with 504, the
/// repetition fails with 409 like a refused write, and nobody checks whether writing is still allowed. Callers retry
/// and report themselves.
///
/// # Errors
/// Certificates or credentials cannot be read.
pub fn connect(mut config: Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    Client::try_from(config)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::StatusCode;
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_write_is_sent_once_whatever_the_answer() {
        for code in [429, 503, 504] {
            let requests = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&requests);
            let answer = move || {
                counted.fetch_add(1, Ordering::SeqCst);
                async move { StatusCode::from_u16(code).unwrap() }
            };
            let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", port.local_addr().unwrap()).parse().unwrap();
            let serving = tokio::spawn(axum::serve(port, Router::new().fallback(answer)).into_future());
            let pods: Api<Pod> = Api::default_namespaced(connect(Config::new(url)).unwrap());
            let patch = Patch::Merge(json!({}));
            pods.patch("p", &PatchParams::default(), &patch).await.unwrap_err();
            assert_eq!(requests.load(Ordering::SeqCst), 1, "{code}");
            serving.abort();
        }
    }
}
