//! Kinds of objects that cannot be listed: who may be of a gang of theirs waits, and everybody else goes on.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::Kind;
use tessera_cluster::gang::{self, GangError};

use super::Decider;

impl Decider {
    /// From now on all objects were observed but those of these kinds. Only Jobs, JobSets, LeaderWorkerSets, PodGroups and
    /// PodDisruptionBudgets may be among them; without these last nobody is preempted.
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

    /// Whether the pod may be of a gang that cannot be listed: nobody knows which others would have to go with it.
    pub(super) fn may_be_of_a_gang(&self, pod: &Pod) -> bool {
        matches!(gang::of_pod(self.cluster.objects(), pod), Err(GangError::NotListed { .. }))
    }
}
