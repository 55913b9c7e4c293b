//! The commands.

pub mod advise;
pub mod allocate;
pub mod cel;
pub mod doctor;
pub mod explain;
pub mod fleet;
pub mod get;
pub mod migrate;
pub mod pools;
pub mod queue;
pub mod quota;
pub mod report;
pub mod simulate;
pub mod top;
pub mod topology;
pub mod ungate;
