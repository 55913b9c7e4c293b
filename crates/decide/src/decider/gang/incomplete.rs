//! Gangs with too few existing pods.

use tessera_cluster::PodExt;
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use super::super::Decider;
use super::Gang;
use super::members::Found;
use crate::wait_reason::WaitReason;

/// Time after its newest pod at which an incomplete gang is reported.
const TELL_AFTER: Time = Time::from_secs(60);

impl Decider {
    /// Wait reason of a gang with too few existing pods.
    pub(super) fn stays_incomplete(&mut self, now: Time, gang: &Gang, why: String) -> WaitReason {
        let due = gang.newest() + TELL_AFTER;
        if now < due {
            self.gangs.set_due(&gang.id, due);
            return WaitReason::Passing(why);
        }
        let owners =
            gang.members.iter().flat_map(|member| member.pod.metadata.owner_references.iter().flatten());
        let hint = owners.filter(|owner| owner.controller == Some(true)).find_map(|owner| hint(&owner.kind));
        WaitReason::Unfit(hint.map_or_else(|| why.clone(), |hint| format!("{why}; {hint}")))
    }

    /// Records the demand of pods waiting with their gang, even while the gang itself cannot be placed.
    pub(super) fn note_what_is_asked(&mut self, found: &[Found]) {
        for (key, pod, _) in found.iter().filter(|(_, pod, _)| pod.node_name().is_none()) {
            let Ok(demand) = Demand::of(self.cluster.objects(), pod) else { continue };
            if let Some(waiting) = self.waiting.get_mut(key)
                && demand.obstacle().is_none()
                && demand.is_open()
            {
                waiting.shape_text = Some(demand.text());
            }
        }
    }
}

/// Why a controller of this kind may never create all pods at once.
fn hint(owner: &str) -> Option<&'static str> {
    match owner {
        "ReplicaSet" => Some(
            "a Deployment updates its pods some at a time, and those of each revision are a gang of their own: as a gang \
             it needs strategy Recreate",
        ),
        "StatefulSet" => Some(
            "a StatefulSet makes each pod when the one before it is ready, which waits for its gang: it needs \
             podManagementPolicy Parallel, and for changes of its pods updateStrategy OnDelete and all of them deleted",
        ),
        _ => None,
    }
}
