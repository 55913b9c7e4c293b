//! Pods affected by a Job, JobSet, LeaderWorkerSet or PodGroup: a change of one concerns few of the many pods in a namespace.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::gang::named_by;
use tessera_cluster::{Key, Kind};

/// Pods by the objects they name.
#[derive(Debug, Default)]
pub(crate) struct WorkloadPods {
    pods: BTreeMap<(Kind, Key), BTreeSet<Key>>,
}

impl WorkloadPods {
    /// Updates the index for a changed pod; `None` where the pod was absent before, or is deleted.
    pub fn replace(&mut self, key: &Key, before: Option<&Pod>, after: Option<&Pod>) {
        let (before, after) = (before.map(named_by), after.map(named_by));
        if before == after {
            return;
        }
        for named in before.into_iter().flatten() {
            if let Some(pods) = self.pods.get_mut(&named) {
                pods.remove(key);
                if pods.is_empty() {
                    self.pods.remove(&named);
                }
            }
        }
        for named in after.into_iter().flatten() {
            self.pods.entry(named).or_default().insert(key.clone());
        }
    }

    /// The pods naming the object.
    pub fn of(&self, kind: Kind, key: &Key) -> impl Iterator<Item = &Key> {
        self.pods.get(&(kind, key.clone())).into_iter().flatten()
    }
}
