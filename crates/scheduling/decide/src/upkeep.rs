//! Repairs: devices held twice, without a pod, unusable, or not used by their pods, memory of others, and pods not bound in time.

pub(crate) mod idle;
pub(crate) mod overdue;
pub(crate) mod overlaps;
pub(crate) mod overuse;
pub(crate) mod unclaimed;
pub(crate) mod unready;
