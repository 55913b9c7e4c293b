//! Node-value packing: a pod goes to the node whose room for the demand shrinks least.
//!
//! A node's value is the number of cards' worth of the demand observed so far still fitting on the node, in three terms:
//!
//! - [`CardPrices`]: the remainder of each card, by the prices of the cutting-stock problem of the requested sizes. A remainder
//!   nobody asks for has no value, so wasting it is free.
//! - [`Stranding`]: minus the cards expected to be left without CPU once the node is filled up.
//! - [`Reservations`]: plus scarce room for future pods needing several cards, or certain models.
//!
//! A fourth, small term keeps few nodes open. [`Learned`] combines them and learns the demand as pods come and go; [`NodeValuePacking`]
//! chooses by it among plain nodes, as the decision loop does among its own. Names have no influence; the first node wins ties.
//!
//! Nodes and demands are plain numbers here, without Kubernetes, I/O, clock or randomness. All floating-point operations are those
//! of IEEE 754 or the crate `libm`, so every platform makes the same choice.

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
