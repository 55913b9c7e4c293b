//! How much of a fleet gets allocated: the same arrivals, placed by us and by others.
//!
//! [`openb`] reads a trace; [`Filling`] lets its pods arrive in random order until the fleet is full and beyond, [`Steady`] lets
//! them come and go. [`PolicyName`] names who places them. The same seed gives the same answer on every platform and with every
//! policy the same arrivals.

mod arrivals;
mod filling;
pub mod fleet;
mod fragmentation;
pub mod openb;
mod policy;
mod random;
mod report;
mod steady;

pub use arrivals::{Arrivals, TooManyArrivals};
pub use filling::{Filling, LOADS};
pub use fragmentation::TypicalPods;
pub use openb::Trace;
pub use policy::{Policy, PolicyName, UnknownPolicy};
pub use random::Random;
pub use report::{ByLoad, PolicyReport, Report, Spread};
pub use steady::Steady;
