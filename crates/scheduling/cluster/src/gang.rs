//! Gangs: pods starting together or not at all, and how a pod declares its membership.

mod complete;
mod done;
mod error;
mod formed;
pub mod labels;
mod timeout;
mod workload;

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use tessera_api::gang::{
    GROUP_LABEL, GROUP_MIN_LABEL, GROUP_SIZE_LABEL, MAX_SIZE, WHEN_PARTIAL_EVICT, WHEN_PARTIAL_KEEP,
    WHEN_PARTIAL_LABEL,
};

use crate::key::Key;
use crate::objects::Objects;

pub use done::done_and_gone;
pub use error::GangError;
pub use formed::{formed, formed_by};
pub use timeout::partial_timeout;
pub use workload::{job_set_of, named_by};

/// Identity of a gang, distinct also from earlier and later gangs of the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangId {
    /// Namespace of its pods.
    pub namespace: String,
    /// Name of the gang, as shown to users.
    pub name: String,
    /// Uid of the pods' owner, or the owner's name where the pods carry no uid; empty without an owner.
    pub owner: String,
    /// Restart attempt of a JobSet, or template revision of a LeaderWorkerSet; empty where owners have none.
    pub attempt: String,
}

/// `namespace/name`.
impl fmt::Display for GangId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Action on a gang's running pods when the other members find no room for too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenPartial {
    /// Evict the running pods.
    #[default]
    Evict,
    /// Let the running pods continue.
    Keep,
}

/// Position of a pod in its gang. Neighbours communicate most.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Index of the Job in a JobSet.
    pub job: u32,
    /// Index of the pod in its Job.
    pub pod: u32,
    /// The pod's name, to order pods without an index.
    pub name: String,
}

/// Gang membership as declared by a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The gang.
    pub gang: GangId,
    /// Number of pods in the gang.
    pub size: u32,
    /// Minimum number of pods to work with.
    pub min: u32,
    /// The pod's position in the gang.
    pub rank: Rank,
    /// Action on pods running without the others.
    pub when_partial: WhenPartial,
}

/// The gang of the pod; `None` if the pod belongs to no gang.
///
/// # Errors
/// The pod declares a gang membership with invalid or contradictory values.
pub fn of_pod(objects: &Objects, pod: &Pod) -> Result<Option<Membership>, GangError> {
    let Some(name) = label(pod, GROUP_LABEL) else { return workload::gang_of(objects, pod) };
    let size = number(pod, GROUP_SIZE_LABEL, MAX_SIZE)?.ok_or(GangError::NoSize)?;
    let (owner, attempt) = workload::owner_of(pod);
    let gang =
        GangId { namespace: Key::from(&pod.metadata).namespace, name: name.to_owned(), owner, attempt };
    let member = membership(pod, gang, size)?;
    complete::may_be_complete(objects, pod, member.min)?;
    Ok(Some(member))
}

/// Whether all pods of the pod's group lose their gates together: since Kubernetes 1.37 kube-scheduler holds back a whole PodGroup
/// while one of its pods has a gate (feature gate GenericWorkload).
pub fn is_ungated_together(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.scheduling_group.is_some())
}

/// Whether the pod declares a gang membership, valid or not.
pub fn is_member(objects: &Objects, pod: &Pod) -> bool {
    !matches!(of_pod(objects, pod), Ok(None))
}

fn membership(pod: &Pod, gang: GangId, size: u32) -> Result<Membership, GangError> {
    let min = number(pod, GROUP_MIN_LABEL, MAX_SIZE)?.unwrap_or(size);
    if min > size {
        return Err(GangError::MinAboveSize { min, size });
    }
    let when_partial = match label(pod, WHEN_PARTIAL_LABEL) {
        None | Some(WHEN_PARTIAL_EVICT) => WhenPartial::Evict,
        Some(WHEN_PARTIAL_KEEP) => WhenPartial::Keep,
        Some(other) => return Err(GangError::WhenPartial(other.to_owned())),
    };
    Ok(Membership { gang, size, min, rank: workload::rank_of(pod), when_partial })
}

fn label<'p>(pod: &'p Pod, label: &str) -> Option<&'p str> {
    pod.metadata.labels.as_ref()?.get(label).map(String::as_str)
}

/// The number in a label, from 1 to `most`.
fn number(pod: &Pod, name: &'static str, most: u32) -> Result<Option<u32>, GangError> {
    let Some(text) = label(pod, name) else { return Ok(None) };
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.map(Some).ok_or_else(|| GangError::Number { label: name, text: text.to_owned(), most })
}

/// Checks the members' declarations of a gang against each other. Each member comes with its name.
///
/// # Errors
/// The members declare different sizes, or outnumber the declared size.
pub fn agree<'m>(members: impl Iterator<Item = (&'m Key, &'m Membership)>) -> Result<(), GangError> {
    let mut first: Option<(&Key, &Membership)> = None;
    let mut count = 0;
    for (pod, member) in members {
        count += 1;
        let (other, known) = *first.get_or_insert((pod, member));
        if (known.size, known.min) != (member.size, member.min) {
            return Err(GangError::Differ {
                pods: [other.name.clone(), pod.name.clone()],
                sizes: [known.size, member.size],
                mins: [known.min, member.min],
            });
        }
    }
    match first {
        Some((_, member)) if count > member.size => Err(GangError::TooMany { count, size: member.size }),
        _ => Ok(()),
    }
}
