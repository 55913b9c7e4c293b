//! Kinds of objects without list access: pods possibly in gangs of these kinds wait, all others proceed.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::Kind;
use tessera_cluster::gang::{self, GangError};

use super::Decider;

impl Decider {
    /// Marks all objects except those of these kinds as observed. Only Jobs, JobSets, LeaderWorkerSets, PodGroups and
    /// PodDisruptionBudgets may be unlisted; without PodDisruptionBudgets nobody is preempted.
    pub fn set_unlisted(&mut self, kinds: &BTreeSet<Kind>) {
        if self.cluster.objects().unlisted == *kinds {
            return;
        }
        self.cluster.set_unlisted(kinds.clone());
        for (key, pod) in &self.cluster.objects().pods {
            let gang = gang::of_pod(self.cluster.objects(), pod).ok().flatten();
            self.gangs.set(key, gang.map(|member| member.gang));
        }
        self.queue.extend(self.waiting.keys().cloned());
    }

    /// Whether the pod may be in a gang of an unlisted kind, whose other pods to evict with it are unknown.
    pub(super) fn may_be_of_a_gang(&self, pod: &Pod) -> bool {
        matches!(gang::of_pod(self.cluster.objects(), pod), Err(GangError::NotListed { .. }))
    }
}
