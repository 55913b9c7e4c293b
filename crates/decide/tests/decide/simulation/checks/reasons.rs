//! What the loop says of pods, as values: nothing else here reads its words.

/// The gang or pod for which somebody is evicted, as `namespace/name`, if for anybody.
pub fn preemptor(why: &str) -> Option<&str> {
    why.strip_prefix("preempted by ")?.split(' ').next()
}

/// What the loop says of a pod that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It keeps its place: it fits nowhere, or others are to be evicted for it.
    KeepsItsPlace,
    /// As many of its gang as are needed do not fit, and it keeps its place.
    GangDoesNotFit,
    /// Others pass it, or it has no place in the queue.
    None,
}

impl Standing {
    pub fn of(why: &str) -> Self {
        let says = |text: &str| why.contains(text);
        if says("others pass it") {
            Standing::None
        } else if says("pods that it needs fit now") {
            Standing::GangDoesNotFit
        } else if ["nodes with GPUs can take it", "evicted for it", "planned for it is being written"]
            .into_iter()
            .any(says)
        {
            Standing::KeepsItsPlace
        } else {
            Standing::None
        }
    }
}
