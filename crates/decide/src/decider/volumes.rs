//! Volumes, whose topology constrains the nodes of their pods.

use tessera_cluster::usage::volume_claims;
use tessera_cluster::{Key, Kind};

use super::Decider;

impl Decider {
    /// Whether a waiting pod uses this PersistentVolumeClaim, or this PersistentVolume through one.
    pub(super) fn is_volume_of_waiting(&self, kind: Kind, key: &Key) -> bool {
        let objects = self.cluster.objects();
        self.waiting.keys().filter_map(|waiting| Some((waiting, objects.pods.get(waiting)?))).any(
            |(waiting, pod)| {
                volume_claims(pod).any(|name| {
                    let claim = waiting.with_name(name);
                    if kind == Kind::PersistentVolumeClaim {
                        return claim == *key;
                    }
                    let claim = objects.volume_claims.get(&claim);
                    claim.and_then(|claim| claim.spec.as_ref()?.volume_name.as_ref()) == Some(&key.name)
                })
            },
        )
    }
}
