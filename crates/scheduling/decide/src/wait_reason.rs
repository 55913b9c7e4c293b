//! Why a pod waits.

use std::fmt;

use tessera_placement::reason::ClearsOn;

/// Why a pod waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitReason {
    /// Ends without anybody's action: an answer to a write, an object, or the end of a pause arrives. No Event for the owner.
    Passing(String),
    /// The pod cannot be placed as it is, however much is free.
    Unfit(String),
    /// An earlier pod waits for cards of its pools, whose queue is strict.
    Behind,
    /// Its selectors are so expensive to evaluate as to need several rounds.
    Costly(String),
    /// No node can take the pod at present.
    NoNode {
        /// Shortcomings of the nodes, and actions taken about them.
        text: String,
        /// Whether the pod keeps its place in the queue. Others pass a pod nothing could help.
        keeps_place: bool,
    },
    /// Others make room for this pod, or will.
    Preempting(String),
    /// Its devices would exceed a limit of its team. The pod keeps nobody waiting.
    TeamLimit(String),
    /// The GPU hours of its team are spent, or do not last until its deadline. The pod keeps nobody waiting.
    TeamBudget(String),
    /// It was made in place of an idle pod that made room, and others wait. The pod keeps nobody waiting.
    IdleEvicted(String),
}

impl WaitReason {
    /// The name of the variant, for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            WaitReason::Passing(_) => "Passing",
            WaitReason::Unfit(_) => "Unfit",
            WaitReason::Behind => "Behind",
            WaitReason::Costly(_) => "Costly",
            WaitReason::NoNode { .. } => "NoNode",
            WaitReason::Preempting(_) => "Preempting",
            WaitReason::TeamLimit(_) => "TeamLimit",
            WaitReason::TeamBudget(_) => "TeamBudget",
            WaitReason::IdleEvicted(_) => "IdleEvicted",
        }
    }

    /// The text for people.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            WaitReason::Passing(text)
            | WaitReason::Unfit(text)
            | WaitReason::Costly(text)
            | WaitReason::NoNode { text, .. }
            | WaitReason::Preempting(text)
            | WaitReason::TeamLimit(text)
            | WaitReason::TeamBudget(text)
            | WaitReason::IdleEvicted(text) => text,
            WaitReason::Behind => "pods that go first wait for cards of its pool, whose queue is strict",
        }
    }

    /// Whether the owner gets an Event. Other reasons end before anybody could read them.
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
            WaitReason::Passing(_)
            | WaitReason::Unfit(_)
            | WaitReason::Behind
            | WaitReason::Costly(_)
            | WaitReason::TeamLimit(_)
            | WaitReason::TeamBudget(_)
            | WaitReason::IdleEvicted(_) => false,
        }
    }

    /// The kind of change able to end the wait.
    #[must_use]
    pub fn clears_on(&self) -> ClearsOn {
        match self {
            WaitReason::Passing(_) | WaitReason::TeamBudget(_) => ClearsOn::Time,
            WaitReason::Unfit(_) => ClearsOn::Pod,
            WaitReason::Behind
            | WaitReason::Preempting(_)
            | WaitReason::TeamLimit(_)
            | WaitReason::IdleEvicted(_) => ClearsOn::Others,
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
