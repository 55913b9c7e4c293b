//! The unit of every decision: a gang, or a pod outside gangs as a group of one, with the progress of each member.
//!
//! **Guarantees**
//! 1. The state of a member follows from its pod, its claims and its row in the ledger, never from an earlier state.
//! 2. `formed` stands on the pods: a gang that started with so many pods is not partial while so many of them run.
//!
//! **States** of a member
//!
//! ```text
//! Open ──(claims have devices)──> Allocated ──(gate removed)──> Lifted ──> Bound ──> Done
//!   ^                                 │                            │
//!   └──(devices taken back)── Astray <┴──(node gone, or refused)───┘
//! ```
//!
//! The gate of a group of one is removed together with its allocation: Open → Lifted.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::gang::{GangId, Rank, WhenPartial};
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;
use tessera_placement::demand::Demand;
use tessera_placement::fit::Takes;

/// Identity of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupId {
    /// A pod outside gangs.
    Pod(Key),
    Gang(GangId),
}

impl GroupId {
    /// The gang, unless the group is a single pod.
    pub fn gang(&self) -> Option<&GangId> {
        match self {
            GroupId::Gang(gang) => Some(gang),
            GroupId::Pod(_) => None,
        }
    }
}

impl GroupId {
    /// The namespace of its pods.
    pub fn namespace(&self) -> &str {
        match self {
            GroupId::Pod(pod) => &pod.namespace,
            GroupId::Gang(gang) => &gang.namespace,
        }
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupId::Pod(pod) => pod.fmt(formatter),
            GroupId::Gang(gang) => gang.fmt(formatter),
        }
    }
}

/// Progress of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SeatState {
    /// Needs devices and lacks some, gated or not.
    Open,
    /// Gated, with devices on this node; `None` if it needs none of managed cards.
    Allocated(Option<String>),
    /// With devices on a node since deleted or refused by kube-scheduler, or to be left without devices for a while.
    Astray,
    /// Cannot get devices as it is, however many are free.
    Unfit,
    /// Without a gate, not bound yet.
    Lifted,
    /// Bound to a node.
    Bound,
    /// Succeeded.
    Done,
}

/// A pod of a group.
pub(crate) struct Member {
    pub key: Key,
    pub pod: Arc<Pod>,
    pub rank: Rank,
    pub state: SeatState,
    /// Its demand, unless it is bound.
    pub demand: Option<Demand>,
}

impl Member {
    /// The node that the pod is bound to, or has devices on.
    pub fn node(&self) -> Option<&str> {
        match &self.state {
            SeatState::Allocated(node) => node.as_deref(),
            _ => self.pod.node_name(),
        }
    }

    /// The node with devices of the pod that nobody else can get.
    pub fn node_with_devices(&self) -> Option<&str> {
        self.node().filter(|_| self.holds() || matches!(self.state, SeatState::Allocated(_)))
    }

    /// Whether the pod is bound or released with claims, so nobody else can get its devices.
    pub fn holds(&self) -> bool {
        let claims = self.pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
        matches!(self.state, SeatState::Lifted | SeatState::Bound) && claims.into_iter().next().is_some()
    }
}

/// Node and devices planned for one pod.
pub(crate) struct Placement<'m> {
    pub member: &'m Member,
    pub node: String,
    pub fit: Takes,
    /// Why this node, for the owner.
    pub why: String,
}

/// A pod outside gangs, or a gang whose pods agree on its parameters.
pub(crate) struct Group {
    pub id: GroupId,
    pub size: usize,
    pub min: usize,
    pub when_partial: WhenPartial,
    /// Number of its succeeded pods already deleted.
    pub done: usize,
    /// Number of pods that it started with; 0 before its start.
    pub formed: usize,
    /// Sorted by rank.
    pub members: Vec<Member>,
    /// The first pod that cannot get devices as it is, and why.
    pub unfit: Option<(Key, String)>,
}

impl Group {
    /// Whether this is a pod outside gangs.
    pub fn is_alone(&self) -> bool {
        matches!(self.id, GroupId::Pod(_))
    }

    /// Whether too few pods can get devices as they are.
    pub fn is_blocked(&self) -> bool {
        let fit = self.members.iter().filter(|member| member.state != SeatState::Unfit).count();
        self.unfit.is_some() && fit + self.done < self.least()
    }

    /// The gang's name, or the pod's.
    pub fn name(&self) -> &str {
        match &self.id {
            GroupId::Pod(pod) => &pod.name,
            GroupId::Gang(gang) => &gang.name,
        }
    }

    pub fn in_state(&self, state: &SeatState) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.state == *state)
    }

    pub fn open(&self) -> Vec<&Member> {
        self.in_state(&SeatState::Open).collect()
    }

    pub fn allocated(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| matches!(member.state, SeatState::Allocated(_)))
    }

    /// Number of pods succeeded, bound, or released to their node.
    pub fn there(&self) -> usize {
        let is_there =
            |member: &&Member| matches!(member.state, SeatState::Lifted | SeatState::Bound | SeatState::Done);
        self.members.iter().filter(is_there).count() + self.done
    }

    /// Number of pods succeeded or bound.
    pub fn bound_or_done(&self) -> usize {
        let is_there = |member: &&Member| matches!(member.state, SeatState::Bound | SeatState::Done);
        self.members.iter().filter(is_there).count() + self.done
    }

    /// Number of pods that have to run together: `min`, but while the gang grows only the pods it started with.
    pub fn least(&self) -> usize {
        if self.formed == 0 { self.min } else { self.min.min(self.formed) }
    }

    /// The lowest priority of its pods.
    pub fn priority(&self) -> i32 {
        self.members.iter().map(|member| member.pod.priority()).min().unwrap_or(i32::MIN)
    }

    /// Whether its priority may make others go.
    pub fn may_preempt(&self) -> bool {
        let policy = |member: &Member| member.pod.spec.as_ref()?.preemption_policy.clone();
        self.members.iter().all(|member| policy(member).as_deref() != Some("Never"))
    }

    /// When the newest of its pods was created.
    pub fn newest(&self) -> Time {
        self.members.iter().map(|member| created(&member.pod)).max().unwrap_or_default()
    }

    /// The nodes its pods are bound to or hold devices on.
    pub fn nodes(&self) -> BTreeSet<String> {
        self.members.iter().filter_map(Member::node).map(str::to_owned).collect()
    }
}

/// Creation time of the pod, in whole seconds.
pub(crate) fn created(pod: &Pod) -> Time {
    let created = pod.metadata.creation_timestamp.as_ref().map(|created| created.0.as_second());
    created.and_then(|created| u64::try_from(created).ok()).map(Time::from_secs).unwrap_or_default()
}
