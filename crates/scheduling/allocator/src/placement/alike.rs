//! Interchangeable requests.

use crate::validity::{Assignment, Slot};

/// Whether two requests of one claim, for one device each, ask for the same: then two devices can be swapped between
/// the requests without effect.
pub(super) fn are_alike(assignment: &Assignment<'_, '_>, one: u32, other: u32) -> bool {
    let (one, other) = (&assignment.slots[one as usize], &assignment.slots[other as usize]);
    let constraints = assignment.constraints.get(one.claim as usize);
    let applies_to = |slot: &Slot<'_>, constraint: &crate::validity::ConstraintState| {
        constraint.is_about(slot.request as usize, slot.alternative as usize)
    };
    one.claim == other.claim
        && (one.is_all, other.is_all) == (false, false)
        && (one.count, other.count) == (1, 1)
        && one.admin_access == other.admin_access
        && one.class.name == other.class.name
        && one.ask.selectors == other.ask.selectors
        && one.ask.tolerations == other.ask.tolerations
        && has_same_capacity(one, other)
        && constraints
            .into_iter()
            .flatten()
            .all(|constraint| applies_to(one, constraint) == applies_to(other, constraint))
}

fn has_same_capacity(one: &Slot<'_>, other: &Slot<'_>) -> bool {
    let of = |slot: &Slot<'_>| -> Vec<_> {
        slot.ask.capacity.iter().flatten().map(|(name, amount)| (name.clone(), amount.nanos())).collect()
    };
    of(one) == of(other)
}
