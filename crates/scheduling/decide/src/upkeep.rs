//! Repairs: devices held twice, without a pod, unusable, or not used by their pods, and pods not bound in time.

pub(crate) mod idle;
pub(crate) mod overdue;
pub(crate) mod overlaps;
pub(crate) mod unclaimed;
pub(crate) mod unready;
