//! What is published of a machine: tiers of slices, in the order in which kube-scheduler shall try them.

mod held;
mod slice;
mod warning;

pub use held::Held;
pub use slice::{Contents, Slice, Tier};
pub use warning::Warning;

/// What a [`Pool`] depends on besides the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOptions {
    /// Name of the DRA driver: the prefix of the taints' keys.
    pub driver_name: String,
    /// Devices that allocated or prepared claims hold, as they were last published.
    pub held: Held,
}

/// The devices of one node as they shall be published.
///
/// Made by `Pool::new(&Machine, &PoolOptions)`. Equal [`Pool::slices`] mean that nothing needs to be written. Comparing
/// with what an API server gives back, leave out `timeAdded` of taints: the server fills it in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// The slices by ascending [`Slice::name_suffix`]; none on a machine without anything to publish.
    pub slices: Vec<Slice>,
    /// What could not be published, and why. For the log, not for the API.
    pub warnings: Vec<Warning>,
}
