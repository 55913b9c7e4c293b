//! Cost of allocating devices of a node, in three terms: sets of cards by the links between them ([`CardSets`]), partitions by the
//! room left for others ([`Partitions`], [`RequestMix`]), and whole cards and shares by the node's remaining room for the demand
//! ([`Packing`]).
//!
//! Nodes are ranked by all three; [`NodeValue`] combines them for the devices of one node, as the cost function required by
//! [`tessera_allocator::placement`].

mod cards;
mod node;
mod packing;
mod partitions;
mod request_mix;

pub use cards::{CardSets, CardsCost, KnownMachines, ring_class};
pub use node::{DevicesCost, NodeValue};
pub use packing::{Asked, CardValues, Cost, Packing, PlainCard, PlainNode};
pub use partitions::{Partitions, Placements};
pub use request_mix::RequestMix;
