//! What is asked about: a pod with its claims, or a claim.

mod extended;

use k8s_openapi::api::core::v1::{Node, Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Serialize, Serializer};

use crate::objects::{Key, Objects, display};

/// A pod with its claims, or one claim.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The pod, where it is one.
    pub pod: Option<Pod>,
    /// The claims, in kube-scheduler's order.
    pub claims: Vec<Wanted>,
    /// What keeps the pod from being scheduled whatever devices there are.
    pub obstacles: Vec<PodObstacle>,
}

/// What keeps a pod from being scheduled whatever devices there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodObstacle {
    /// It has a scheduling gate.
    #[error(
        "the scheduling gate {0} is on the pod: kube-scheduler does not look at it until that is removed"
    )]
    SchedulingGate(String),
    /// A claim that it names does not exist.
    #[error("the ResourceClaim {name} does not exist in namespace {namespace}")]
    NoClaim {
        /// The claim's name.
        name: String,
        /// The pod's namespace.
        namespace: String,
    },
    /// One of its claims is neither one that exists nor one to make.
    #[error("the pod's claim {0} names neither a claim nor a template")]
    NothingNamed(String),
    /// A template that it names does not exist.
    #[error("the ResourceClaimTemplate {} does not exist", display(.0))]
    NoTemplate(Key),
    /// An extended resource that nothing provides: no class stands for it, and no device plugin serves it.
    #[error("no DeviceClass has the extendedResourceName {0}, and no node has any")]
    NoExtendedResource(String),
}

/// What makes a claim that does not exist yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MadeFrom {
    /// A ResourceClaimTemplate.
    #[error("template {0}")]
    Template(String),
    /// The extended resources that the pod asks for.
    #[error("extended resource {}", .0.join(", "))]
    ExtendedResources(Vec<String>),
}

impl Serialize for MadeFrom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A claim and how it comes to be.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The claim.
    pub claim: ResourceClaim,
    /// What makes it, where it does not exist yet: a template or an extended resource.
    pub made_from: Option<MadeFrom>,
    /// The extended resource it stands for: nodes with a device plugin for that do not need it.
    pub extended_resources: Vec<String>,
}

impl Wanted {
    /// Whether it has devices already.
    pub fn is_allocated(&self) -> bool {
        self.claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
    }

    /// Whether the node serves the extended resources of this claim by a device plugin.
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

/// Every pod that is not bound to a node yet; where there is no pod at all, every claim without devices.
pub fn waiting(objects: &Objects) -> Vec<Subject> {
    if objects.pods.is_empty() {
        let claims = objects.claims.values().map(of_claim);
        return claims.filter(|subject| !subject.claims.iter().all(Wanted::is_allocated)).collect();
    }
    let unbound = |pod: &&Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
    objects.pods.values().filter(unbound).map(|pod| of_pod(objects, pod)).collect()
}

/// The claim as if a pod used it alone.
pub fn of_claim(claim: &ResourceClaim) -> Subject {
    let wanted = Wanted { claim: claim.clone(), made_from: None, extended_resources: Vec::new() };
    Subject { pod: None, claims: vec![wanted], obstacles: Vec::new() }
}

/// The pod with its claims; those that do not exist yet as they will be made.
pub fn of_pod(objects: &Objects, pod: &Pod) -> Subject {
    let mut subject = Subject { pod: Some(pod.clone()), claims: Vec::new(), obstacles: Vec::new() };
    let Some(spec) = &pod.spec else { return subject };
    for gate in spec.scheduling_gates.iter().flatten() {
        subject.obstacles.push(PodObstacle::SchedulingGate(gate.name.clone()));
    }
    for reference in spec.resource_claims.iter().flatten() {
        match claim_of(objects, pod, reference) {
            Ok(Some(wanted)) => subject.claims.push(wanted),
            Ok(None) => {}
            Err(obstacle) => subject.obstacles.push(obstacle),
        }
    }
    subject.claims.extend(extended::claim(objects, pod));
    subject.obstacles.extend(extended::unprovided(objects, pod));
    subject
}

fn claim_of(
    objects: &Objects,
    pod: &Pod,
    reference: &PodResourceClaim,
) -> Result<Option<Wanted>, PodObstacle> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let existing = |name: &str| {
        let claim = objects.claims.get(&(namespace.clone(), name.to_owned()))?;
        Some(Wanted { claim: claim.clone(), made_from: None, extended_resources: Vec::new() })
    };
    let missing = |name: &str| PodObstacle::NoClaim { name: name.to_owned(), namespace: namespace.clone() };
    if let Some(name) = &reference.resource_claim_name {
        return existing(name).map(Some).ok_or_else(|| missing(name));
    }
    let Some(template) = &reference.resource_claim_template_name else {
        return Err(PodObstacle::NothingNamed(reference.name.clone()));
    };
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
    if let Some(status) = statuses.into_iter().flatten().find(|status| status.name == reference.name) {
        return match &status.resource_claim_name {
            // The template asked for no claim.
            None => Ok(None),
            Some(name) => existing(name).map(Some).ok_or_else(|| missing(name)),
        };
    }
    let key = (namespace.clone(), template.clone());
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
