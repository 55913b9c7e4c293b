//! What it costs to give devices of a node, in three terms: sets of cards by the links between them ([`CardSets`]), partitions by what
//! they leave room for ([`Partitions`], [`RequestMix`]), and whole cards and shares by what the node can then still take of the
//! demand ([`Packing`]).
//!
//! Nodes are ranked by all three; [`NodeValue`] puts them together for the devices of one node, as the cost that
//! [`tessera_allocator::placement`] asks for.

mod cards;
mod node;
mod packing;
mod partitions;
mod request_mix;

pub use cards::{CardSets, CardsCost, KnownMachines, ring_class};
pub use node::{DevicesCost, NodeValue};
pub use packing::{Asked, CardValues, Cost, Packing, PlainCard, PlainNode};
pub use partitions::Partitions;
pub use request_mix::RequestMix;
