//! Why a pod waits.

use std::fmt;

use tessera_placement::reason::ClearsOn;

/// Why a pod waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitReason {
    /// Something comes without anybody's doing: an answer to a write, an object, the end of a pause. Its owner is not told.
    Passing(String),
    /// It cannot be placed as it is, whatever is free.
    Unfit(String),
    /// Somebody who goes first waits for cards of its pools, whose queue is strict.
    Behind,
    /// The answers of its selectors cost so much that some of them are found at a time.
    Costly(String),
    /// No node can take it as things are.
    NoNode {
        /// What the nodes lack, and what is done about that.
        text: String,
        /// Whether it keeps its place in the queue. Others pass one that nothing could help.
        keeps_place: bool,
    },
    /// Pods of lower priority make room for it, or will.
    Preempting(String),
}

impl WaitReason {
    /// The name of its variant, for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            WaitReason::Passing(_) => "Passing",
            WaitReason::Unfit(_) => "Unfit",
            WaitReason::Behind => "Behind",
            WaitReason::Costly(_) => "Costly",
            WaitReason::NoNode { .. } => "NoNode",
            WaitReason::Preempting(_) => "Preempting",
        }
    }

    /// The text that is told.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            WaitReason::Passing(text)
            | WaitReason::Unfit(text)
            | WaitReason::Costly(text)
            | WaitReason::NoNode { text, .. }
            | WaitReason::Preempting(text) => text,
            WaitReason::Behind => "pods that go first wait for cards of its pool, whose queue is strict",
        }
    }

    /// Whether its owner is told: others pass before anybody could read them.
    #[must_use]
    pub fn is_told(&self) -> bool {
        !matches!(self, WaitReason::Passing(_))
    }

    /// Whether the pod keeps its place in the queue of its pools.
    #[must_use]
    pub fn keeps_place(&self) -> bool {
        match self {
            WaitReason::NoNode { keeps_place, .. } => *keeps_place,
            WaitReason::Preempting(_) => true,
            WaitReason::Passing(_) | WaitReason::Unfit(_) | WaitReason::Behind | WaitReason::Costly(_) => {
                false
            }
        }
    }

    /// What can make an end of it.
    #[must_use]
    pub fn clears_on(&self) -> ClearsOn {
        match self {
            WaitReason::Passing(_) => ClearsOn::Time,
            WaitReason::Unfit(_) => ClearsOn::Pod,
            WaitReason::Behind | WaitReason::Preempting(_) => ClearsOn::Others,
            WaitReason::Costly(_) => ClearsOn::Cost,
            WaitReason::NoNode { .. } => ClearsOn::Node,
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}
