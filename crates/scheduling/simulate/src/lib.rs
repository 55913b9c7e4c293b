//! Simulates card allocation in a fleet: the same arrivals, placed by Tessera and by other schedulers' policies.
//!
//! [`openb`] reads a trace; [`Filling`] lets its pods arrive in random order until the fleet is full and beyond, [`Steady`] lets
//! them arrive and depart, both on nodes in plain numbers: a run takes a fiftieth of the time of a run on a [`fleet`]'s objects.
//! [`PolicyName`] names the placing policy. The same seed gives the same result on every platform and the
//! same arrivals for every policy.
//!
//! In: the text of a trace, or a fleet with workloads. Out: a report for each policy. Pure: no I/O, no clock, no
//! threads; randomness comes from the seed. Wing `scheduling`: may use `base`, never `node`.

mod arrivals;
mod control;
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
