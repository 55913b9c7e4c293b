//! Units and limits for counting nodes.

/// Thousandths in a card.
pub const WHOLE: u16 = 1000;

/// Most cards of a node.
pub const MAX_CARDS: usize = 16;

/// Most models of cards in a fleet.
pub const MAX_MODELS: u8 = 64;
