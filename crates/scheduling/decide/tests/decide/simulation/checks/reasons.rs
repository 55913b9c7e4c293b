//! Parses the loop's reasons into values: no other check depends on their wording.

use crate::simulation::quotas::PARENT;

/// The gang or pod for which a pod is evicted, as `namespace/name`; `None` without preemption.
pub fn preemptor(why: &str) -> Option<&str> {
    why.strip_prefix("preempted by ")?.split(' ').next()
}

/// The gang or pod for which a pod gives back borrowed devices, as `namespace/name`.
pub fn taker(why: &str) -> Option<&str> {
    why.strip_prefix("taken back for ")?.split(':').next()
}

/// The gang or pod for which an idle pod is evicted, as `namespace/name`.
pub fn asker(why: &str) -> Option<&str> {
    why.strip_prefix("its GpuPool gives idle devices to those who wait, now to ")?.split(',').next()
}

/// Whether the pod gives devices back for the parent of the other team.
pub fn is_for_parent(why: &str) -> bool {
    why.ends_with(&format!("team {PARENT} is below its guarantee"))
}

/// Whether the pod gives devices back beyond the other team's guarantee.
pub fn is_for_fair_share(why: &str) -> bool {
    why.ends_with("is below its fair share")
}

/// A waiting pod's place in the queue, by the loop's reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Keeps its place: the pod fits nowhere, or other pods are to be evicted.
    KeepsItsPlace,
    /// Keeps its place, and nodes: too few pods of the gang fit.
    GangDoesNotFit,
    /// Other pods pass, or the pod has no place in the queue.
    None,
}

impl Standing {
    pub fn of(why: &str) -> Self {
        let says = |text: &str| why.contains(text);
        if says("others pass it") || says("made in place of a pod that did not use its devices") {
            Standing::None
        } else if says("pods that it needs fit now") && !says("no nodes are kept for it") {
            Standing::GangDoesNotFit
        } else if [
            "with GPUs can take it",
            "that it needs fit now",
            "evicted for it",
            "planned for it is being written",
        ]
        .into_iter()
        .any(says)
        {
            Standing::KeepsItsPlace
        } else {
            Standing::None
        }
    }
}
