//! What it costs to give devices of a node: which of them to take, where the controller chooses itself.
//!
//! Whole cards by the links between them ([`CardSets`]), partitions by what they leave room for ([`Partitions`],
//! [`RequestMix`]), shares by what is open already. [`NodeValue`] puts these together for the devices of one node, as the
//! cost that [`tessera_allocator::placement`] asks for.

mod cards;
mod node;
mod partitions;
mod request_mix;

pub use cards::{CardSets, CardsCost, ring_class};
pub use node::{CardState, DevicesCost, NodeValue};
pub use partitions::Partitions;
pub use request_mix::RequestMix;
