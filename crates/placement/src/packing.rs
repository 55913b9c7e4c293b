//! Node-value packing: a pod goes where what the nodes can still take of the demand shrinks least.
//!
//! The value of a node is the number of cards' worth of the demand seen so far that still fits on it, in three terms:
//!
//! - [`CardPrices`]: what is left of each card, by the prices of the cutting-stock problem of the sizes asked for. A remainder
//!   that nobody asks for is worth nothing, so wasting it is free.
//! - [`Stranding`]: less what will be left without CPU when the node is filled up.
//! - [`Reservations`]: more for room that pods for several cards, or for certain models, will need and find scarce.
//!
//! A fourth, small term keeps few nodes open. [`Learned`] puts them together and learns the mix of the demand as it arrives and
//! leaves; [`NodeValuePacking`] chooses by it among nodes that are plain numbers, as the decision loop does among its own. Nothing depends on names; among equals the first node is taken.
//!
//! Nodes and demands are plain numbers here: nothing of Kubernetes, no I/O, no clock, no randomness. All floating-point
//! operations are those of IEEE 754 or the crate `libm`, so every platform comes to the same choice.

mod card_prices;
mod cost_table;
mod demand;
mod learned;
mod limits;
mod logistic;
mod mix;
mod node;
mod node_value_packing;
mod plan;
mod reservations;
mod stranding;
mod weights;

pub use card_prices::{CardPrices, SIZES};
pub use cost_table::{CostTable, Place};
pub use demand::{Demand, InvalidDemand, ModelSet};
pub use learned::Learned;
pub use limits::{MAX_CARDS, MAX_MODELS, WHOLE};
pub use logistic::logistic;
pub use mix::Mix;
pub use node::{Cards, InvalidNode, Node};
pub use node_value_packing::NodeValuePacking;
pub use reservations::Reservations;
pub use stranding::Stranding;
