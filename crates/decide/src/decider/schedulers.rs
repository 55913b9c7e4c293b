//! Pods of unlisted schedulers, whose placement and verdicts are unknown to this controller.

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use super::Decider;
use crate::intent::Intent;
use crate::wait_reason::WaitReason;

impl Decider {
    /// Why the pod never gets managed cards, if its scheduler is not a configured one.
    pub(super) fn unknown_scheduler(&self, pod: &Pod) -> Option<String> {
        let name = pod.scheduler_name();
        let is_known = self.schedulers.iter().any(|known| known == name);
        (!is_known).then(|| {
            format!(
                "its schedulerName is {name}, and managed cards are for pods of {} (chart values steering.schedulerName and \
                 managed.schedulerNames)",
                self.schedulers.join(", ")
            )
        })
    }

    /// Leaves the pod to its scheduler: removes our gate, or reports the reason if the pod asks for managed cards.
    pub(super) fn leave_to_its_scheduler(
        &mut self,
        now: Time,
        key: &Key,
        pod: &Pod,
        demand: &Demand,
        why: String,
    ) -> Option<Intent> {
        if pod.is_gated() {
            return Some(self.release(key, pod, why));
        }
        if !self.fleet.has_managed() || self.ranked(demand).ranking.is_empty() {
            return None;
        }
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.is_managed = true;
        }
        self.waits(now, key, pod, WaitReason::Unfit(why))
    }
}
