//! Which release of Kubernetes the API server is.

use std::time::Duration;

use kube::Client;
use tessera_api::kubernetes::{KubernetesVersion, is_newer_than_known};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often it is asked: control planes are upgraded while the controller runs.
const INTERVAL: Duration = Duration::from_secs(300);

/// How soon it is asked again where it did not answer.
const AGAIN: Duration = Duration::from_secs(10);

/// Tells the release, as of now and whenever it changes, until `shutdown`.
pub async fn follow(client: Client, releases: watch::Sender<KubernetesVersion>, shutdown: CancellationToken) {
    let mut told = String::new();
    loop {
        let next = match client.apiserver_version().await {
            Ok(version) => {
                if version.git_version != told {
                    tell(&version.git_version, &releases);
                    told = version.git_version;
                }
                INTERVAL
            }
            Err(error) => {
                tracing::debug!(%error, "the API server does not tell its release");
                AGAIN
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(next) => {}
        }
    }
}

fn tell(version: &str, releases: &watch::Sender<KubernetesVersion>) {
    let release = KubernetesVersion::of(version).unwrap_or_default();
    tracing::info!(version, "kube-scheduler is taken for one of Kubernetes {release}");
    if is_newer_than_known(version) {
        tracing::warn!(version, "the API server is newer than all that Tessera was tried with");
    }
    releases.send_replace(release);
}
