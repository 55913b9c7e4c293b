//! Repairs: devices held twice, unused, or unusable, and pods not bound in time.

pub(crate) mod overdue;
pub(crate) mod overlaps;
pub(crate) mod unclaimed;
pub(crate) mod unready;
