//! Ids of hypothetical shares: they only need to differ.

use tessera_api::kubernetes::KubernetesVersion;
use tessera_cluster::Asker;

/// The id of a share.
pub fn share_id(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

/// An [`Asker`] with such ids, answered as by this release of Kubernetes.
pub fn asker(kubernetes: KubernetesVersion) -> Asker {
    let mut shares = 0;
    let asker = Asker::new(move || {
        shares += 1;
        share_id(shares)
    });
    asker.answered_as(kubernetes)
}
