//! Gangs: pods that start together or not at all, and how a pod says that it belongs to one.

mod complete;
mod done;
mod error;
pub mod labels;
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
pub use workload::{job_set_of, named_by};

/// What tells a gang from all others, also from those of the same name before and after it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangId {
    /// Namespace of its pods.
    pub namespace: String,
    /// What people call it.
    pub name: String,
    /// The uid of what made its pods, or its name where the pods tell no uid; empty where nothing did.
    pub owner: String,
    /// How often the owner began anew; empty where owners do not count that.
    pub attempt: String,
}

/// `namespace/name`.
impl fmt::Display for GangId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// What becomes of the pods of a gang that run, when others find no room for too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenPartial {
    /// They are evicted.
    #[default]
    Evict,
    /// They go on.
    Keep,
}

/// The place of a pod among those of its gang: neighbours talk to each other most.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The Job, of a JobSet.
    pub job: u32,
    /// The pod in it.
    pub pod: u32,
    /// The pod's name: of pods without a number.
    pub name: String,
}

/// What a pod says of its gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The gang.
    pub gang: GangId,
    /// Number of its pods.
    pub size: u32,
    /// Number of pods with which it can work.
    pub min: u32,
    /// The pod's place in it.
    pub rank: Rank,
    /// What becomes of pods that run alone.
    pub when_partial: WhenPartial,
}

/// The gang of the pod; `None` where it belongs to none.
///
/// # Errors
/// It says that it belongs to a gang, and what it says of it cannot be.
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

/// Whether the pod says that it belongs to a gang, rightly or not.
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

/// What pods of a gang say that cannot all be true; each with its name.
///
/// # Errors
/// They name different sizes, or are more than they say.
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
