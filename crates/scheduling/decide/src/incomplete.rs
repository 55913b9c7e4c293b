//! Gangs with too few existing pods, and why a controller of their kind may never create enough of them at once.

use tessera_placement::Time;

use crate::gangs::Gangs;
use crate::group::Group;
use crate::wait_reason::WaitReason;

/// Time after its newest pod during which a gang of variable size waits for more pods.
const MORE_MAY_COME: Time = Time::from_secs(10);

/// Time after its newest pod at which an incomplete gang is reported.
const TELL_AFTER: Time = Time::from_secs(60);

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

/// Whether enough pods of the gang exist to start it.
pub(crate) fn is_complete(gangs: &mut Gangs, now: Time, group: &Group) -> Result<(), String> {
    let count = group.members.len() + group.done;
    let is_repaired = group.bound_or_done() < group.least() && count >= group.least();
    if count < group.min && !is_repaired {
        return Err(format!("gang {}: {count} of {} pods exist", group.id, group.min));
    }
    let more = group.newest() + MORE_MAY_COME;
    if count < group.size && group.there() == 0 && more > now {
        gangs.set_due(&group.id, more);
        return Err(format!("gang {}: {count} of {} pods exist; more may come", group.id, group.size));
    }
    Ok(())
}

/// Wait reason of a gang with too few existing pods.
pub(crate) fn stays_incomplete(gangs: &mut Gangs, now: Time, group: &Group, why: String) -> WaitReason {
    let due = group.newest() + TELL_AFTER;
    if now < due {
        gangs.set_due(&group.id, due);
        return WaitReason::Passing(why);
    }
    let owners =
        group.members.iter().flat_map(|member| member.pod.metadata.owner_references.iter().flatten());
    let hint = owners.filter(|owner| owner.controller == Some(true)).find_map(|owner| hint(&owner.kind));
    WaitReason::Unfit(hint.map_or_else(|| why.clone(), |hint| format!("{why}; {hint}")))
}
