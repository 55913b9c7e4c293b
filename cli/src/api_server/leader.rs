//! The Leases for the controller's leader election.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

/// Its name where the chart is installed as `tessera`.
pub(super) const LEASE: &str = "tessera-controller";

/// Labels of the controller's pods, whatever the name of the installation.
const PODS: &str = "app.kubernetes.io/name=tessera,app.kubernetes.io/component=controller";

/// How much the clocks of this machine and of the cluster may differ, in seconds, before a Lease is called old.
const CLOCKS: i64 = 60;

/// A Lease with a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// Namespace of the Lease and of the pods.
    pub namespace: String,
    /// The holder: a pod.
    pub holder: String,
    /// Last renewal.
    pub renewed: Timestamp,
    /// Lease duration in seconds.
    pub lasts: i64,
}

impl Held {
    fn of(lease: &Lease) -> Option<Self> {
        let spec = lease.spec.as_ref()?;
        Some(Held {
            namespace: lease.namespace().unwrap_or_default(),
            holder: spec.holder_identity.clone().filter(|holder| !holder.is_empty())?,
            renewed: spec.renew_time.as_ref()?.0,
            lasts: i64::from(spec.lease_duration_seconds.unwrap_or(0)),
        })
    }

    /// Seconds since the last renewal, if much longer than the Lease's duration.
    pub fn silent(&self, now: Timestamp) -> Option<i64> {
        let seconds = now.as_second() - self.renewed.as_second();
        (seconds > self.lasts + CLOCKS).then_some(seconds)
    }
}

/// The most recently renewed Lease: the one with the chart's usual name, else one held by a pod of the controller, since
/// installations may have other names. `None` if no Lease is held.
///
/// # Errors
/// Leases may not be listed, or the API server fails.
pub(super) async fn leader(client: &Client) -> Result<Option<Held>, kube::Error> {
    let leases: Api<Lease> = Api::all(client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    let usual = newest(leases.list(&named).await?.items.iter().filter_map(Held::of));
    // The Lease of an earlier installation stays for ever.
    if usual.as_ref().is_some_and(|held| held.silent(Timestamp::now()).is_none()) {
        return Ok(usual);
    }
    let pods: Api<Pod> = Api::all(client.clone());
    // Without permission to list pods, only the usual Lease is found.
    let Ok(pods) = pods.list(&ListParams::default().labels(PODS)).await else { return Ok(usual) };
    let mut held: Vec<Held> = usual.into_iter().collect();
    for (namespace, pods) in by_namespace(&pods.items) {
        let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace);
        let leases = leases.list(&ListParams::default()).await?;
        held.extend(leases.items.iter().filter_map(Held::of).filter(|held| pods.contains(&held.holder)));
    }
    Ok(newest(held.into_iter()))
}

fn newest(held: impl Iterator<Item = Held>) -> Option<Held> {
    held.max_by_key(|held| held.renewed)
}

fn by_namespace(pods: &[Pod]) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pod in pods {
        all.entry(pod.namespace().unwrap_or_default()).or_default().insert(pod.name_any());
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(holder: &str, renewed: i64) -> Lease {
        let renewed = Timestamp::from_second(renewed).unwrap();
        serde_json::from_value(json!({ "metadata": { "namespace": "n" }, "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed.to_string() } }))
        .unwrap()
    }

    #[test]
    fn the_lease_that_was_renewed_last_counts() {
        let now = Timestamp::from_second(1_000).unwrap();
        let of = |leases: &[Lease]| newest(leases.iter().filter_map(Held::of));
        assert_eq!(of(&[lease("", 999)]), None, "nobody holds it");
        let held = of(&[lease("b", 10), lease("a", 990)]).unwrap();
        assert_eq!((held.holder.as_str(), held.namespace.as_str(), held.silent(now)), ("a", "n", None));
        assert_eq!(of(&[lease("a", 100)]).unwrap().silent(now), Some(900));
    }
}
