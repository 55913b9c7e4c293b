//! The subject of a question: a pod with its claims, or a claim.

mod extended;
mod limits;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod, PodResourceClaim, PodResourceClaimStatus};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::change::Kind;
use crate::claim::ClaimExt;
use crate::key::Key;
use crate::objects::Objects;
use crate::pod::PodExt;
pub use extended::{IMPLICIT, asks_for_extended_resources, classes_by_resource};

/// A pod with its claims, or one claim.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The pod, if the subject is one.
    pub pod: Option<Pod>,
    /// The claims, in kube-scheduler's order.
    pub claims: Vec<Wanted>,
    /// Obstacles to scheduling the pod, independent of devices.
    pub obstacles: Vec<PodObstacle>,
}

/// An obstacle to scheduling a pod, independent of devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodObstacle {
    /// The pod has a scheduling gate.
    #[error(
        "the scheduling gate {0} is on the pod: kube-scheduler does not look at it until that is removed"
    )]
    SchedulingGate(String),
    /// A claim named by the pod does not exist.
    #[error("the ResourceClaim {name} does not exist in namespace {namespace}")]
    NoClaim {
        /// The claim's name.
        name: String,
        /// The pod's namespace.
        namespace: String,
    },
    /// A claim entry of the pod names neither a claim nor a template.
    #[error("the pod's claim {0} names neither a claim nor a template")]
    NothingNamed(String),
    /// A template named by the pod does not exist.
    #[error("the ResourceClaimTemplate {0} does not exist")]
    NoTemplate(Key),
    /// A claim or template named by the pod exists and cannot be read.
    #[error("its {} {} cannot be read, so that it counts as absent: {why}", .kind.name(), .key)]
    Unreadable {
        /// Kind of the object.
        kind: Kind,
        /// Namespace and name of the object.
        key: Key,
        /// Why the object cannot be read.
        why: String,
    },
    /// The pod has more claims than the supported maximum.
    #[error("it has {count} ResourceClaims, and pods with more than {} are not served", limits::MOST_CLAIMS)]
    TooManyClaims {
        /// Number of claims.
        count: usize,
    },
    /// The pod's claims are larger than the supported maximum.
    #[error(
        "its ResourceClaims, each counted as often as the pod has it, are larger than {} MiB, and such pods are not served: \
         shorten their selectors and parameters, or name fewer",
        limits::MOST_BYTES >> 20
    )]
    TooLarge,
    /// A claim of the pod would be too large to store with devices.
    #[error(
        "its ResourceClaim {} is too large to get devices: {} KiB with its configuration, which an allocation repeats, and etcd takes \
         1.5 MiB unless told: shorten its selectors and parameters",
        .key,
        .bytes >> 10
    )]
    BeyondStorage {
        /// Namespace and name of the claim.
        key: Key,
        /// Bytes, at least.
        bytes: usize,
    },
    /// An extended resource provided neither by a class nor by a device plugin.
    #[error("no DeviceClass has the extendedResourceName {0}, and no node has any")]
    NoExtendedResource(String),
}

impl PodObstacle {
    /// Whether only this project's programs fail on this obstacle, so that no other component informs the pod's owner.
    #[must_use]
    pub fn is_unserved(&self) -> bool {
        matches!(
            self,
            PodObstacle::Unreadable { .. }
                | PodObstacle::TooManyClaims { .. }
                | PodObstacle::TooLarge
                | PodObstacle::BeyondStorage { .. }
        )
    }
}

/// The source of a claim to be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MadeFrom {
    /// A ResourceClaimTemplate.
    #[error("template {0}")]
    Template(String),
    /// Extended resources requested by the pod.
    #[error("extended resource {}", .0.join(", "))]
    ExtendedResources(Vec<String>),
}

impl Serialize for MadeFrom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A claim and its source.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The claim.
    pub claim: ResourceClaim,
    /// Source of a claim to be created: its template or extended resources.
    pub made_from: Option<MadeFrom>,
    /// Extended resources behind the claim. A node whose device plugin serves them needs no claim.
    pub extended_resources: Vec<String>,
}

impl Wanted {
    /// Whether the claim is allocated.
    pub fn is_allocated(&self) -> bool {
        self.claim.has_devices()
    }

    /// Whether the node serves the extended resources of this claim through a device plugin.
    pub fn is_served_by(&self, node: &Node) -> bool {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        !self.extended_resources.is_empty()
            && self.extended_resources.iter().all(|resource| {
                allocatable
                    .and_then(|all| all.get(resource))
                    .is_some_and(|quantity| !quantity.0.trim_start_matches('0').is_empty())
            })
    }
}

/// All pods not bound to a node; if there are no pods at all, all claims without devices.
pub fn waiting(objects: &Objects) -> Vec<Subject> {
    if objects.pods.is_empty() {
        let claims = objects.claims.values().map(|claim| of_claim(claim));
        return claims.filter(|subject| !subject.claims.iter().all(Wanted::is_allocated)).collect();
    }
    let unbound = |pod: &&Pod| pod.node_name().is_none();
    objects.pods.values().map(AsRef::as_ref).filter(unbound).map(|pod| of_pod(objects, pod)).collect()
}

/// The claim as if a pod used it alone.
pub fn of_claim(claim: &ResourceClaim) -> Subject {
    let wanted = Wanted { claim: claim.clone(), made_from: None, extended_resources: Vec::new() };
    Subject { pod: None, claims: vec![wanted], obstacles: Vec::new() }
}

/// When the last of the pod's claims got its devices; `None` where no claim says it.
pub fn allocated_at(objects: &Objects, pod: &Pod) -> Option<Timestamp> {
    of_pod(objects, pod).claims.iter().filter_map(|wanted| wanted.claim.allocated_at()).max()
}

/// The pod with its claims. Claims to be created are built as they will be.
pub fn of_pod(objects: &Objects, pod: &Pod) -> Subject {
    let mut subject = Subject { pod: Some(pod.clone()), claims: Vec::new(), obstacles: Vec::new() };
    let Some(spec) = &pod.spec else { return subject };
    for gate in pod.gates() {
        subject.obstacles.push(PodObstacle::SchedulingGate(gate.to_owned()));
    }
    let references = spec.resource_claims.as_deref().unwrap_or_default();
    if let Some(obstacle) = limits::exceeded(objects, pod, references) {
        subject.obstacles.push(obstacle);
        return subject;
    }
    // The API server lets a pod name the same claim several times.
    let mut seen = BTreeSet::new();
    for reference in references {
        if limits::source_of(pod, reference).is_some_and(|source| !seen.insert(source)) {
            continue;
        }
        match claim_of(objects, pod, reference) {
            Ok(Some(wanted)) => {
                if !wanted.is_allocated() {
                    subject.obstacles.extend(limits::beyond_storage(objects, &wanted.claim));
                }
                subject.claims.push(wanted);
            }
            Ok(None) => {}
            Err(obstacle) => subject.obstacles.push(obstacle),
        }
    }
    subject.claims.extend(extended::claim(objects, pod));
    subject.obstacles.extend(extended::unprovided(objects, pod));
    subject
}

fn readable(objects: &Objects, kind: Kind, key: &Key) -> Result<(), PodObstacle> {
    match objects.unreadable.get(&(kind, key.clone())) {
        None => Ok(()),
        Some(why) => Err(PodObstacle::Unreadable { kind, key: key.clone(), why: why.clone() }),
    }
}

/// The pod's status for the claim generated from one of its references.
fn status_of<'p>(pod: &'p Pod, reference: &PodResourceClaim) -> Option<&'p PodResourceClaimStatus> {
    let statuses = pod.status.as_ref()?.resource_claim_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == reference.name)
}

fn claim_of(
    objects: &Objects,
    pod: &Pod,
    reference: &PodResourceClaim,
) -> Result<Option<Wanted>, PodObstacle> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let existing = |name: &str| {
        let key = Key::new(&namespace, name);
        readable(objects, Kind::ResourceClaim, &key)?;
        let Some(claim) = objects.claims.get(&key) else {
            return Err(PodObstacle::NoClaim { name: key.name, namespace: key.namespace });
        };
        let claim = claim.as_ref().clone();
        Ok(Some(Wanted { claim, made_from: None, extended_resources: Vec::new() }))
    };
    if let Some(name) = &reference.resource_claim_name {
        return existing(name);
    }
    let Some(template) = &reference.resource_claim_template_name else {
        return Err(PodObstacle::NothingNamed(reference.name.clone()));
    };
    if let Some(status) = status_of(pod, reference) {
        // Without a name, no claim was generated from the template.
        return status.resource_claim_name.as_deref().map_or(Ok(None), existing);
    }
    let key = Key::new(&namespace, template);
    readable(objects, Kind::ResourceClaimTemplate, &key)?;
    let Some(found) = objects.templates.get(&key) else {
        return Err(PodObstacle::NoTemplate(key));
    };
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let spec = found.spec.as_ref();
    let claim = ResourceClaim {
        metadata: ObjectMeta {
            name: Some(format!("{pod_name}-{}", reference.name)),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        spec: spec.and_then(|spec| spec.spec.clone()),
        status: None,
    };
    Ok(Some(Wanted {
        claim,
        made_from: Some(MadeFrom::Template(template.clone())),
        extended_resources: Vec::new(),
    }))
}
