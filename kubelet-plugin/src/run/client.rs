//! The connection to the API server.

use std::path::Path;

use anyhow::Context as _;
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Reads where the API server is and who we are; does not connect.
///
/// # Errors
/// When the kubeconfig can't be read or used, or there is none and no service account either.
pub async fn configuration(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    let kubeconfig = kubeconfig.filter(|path| !path.as_os_str().is_empty());
    let Some(path) = kubeconfig else {
        return Config::incluster().context(
            "no Kubernetes client: this is no pod with a service account token, so give --kubeconfig a file",
        );
    };
    let shown = path.display();
    let file = Kubeconfig::read_from(path).with_context(|| format!("cannot read the kubeconfig {shown}"))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("cannot use the kubeconfig {shown}"))
}
