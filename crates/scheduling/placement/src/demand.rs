//! A pod's needs on a node, in a form shared by pods of the same kind.

mod versions;

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use tessera_allocator::claim::{Ask, Claim};
use tessera_cluster::subject::{self, MadeFrom, PodObstacle, Subject, Wanted};
use tessera_cluster::usage::Room;
use tessera_cluster::{Key, ObjectError, Objects, anti_affinity, outcome};

use crate::shape::ShapeId;
pub(crate) use versions::Demands;

/// A pod's needs on a node. A clone shares the contents.
#[derive(Debug, Clone)]
pub struct Demand {
    /// The pod with its claims.
    pub subject: Arc<Subject>,
    /// Claims without an allocation, in the allocator's form.
    claims: Arc<[Claim]>,
    /// Requested CPU, in thousandths of a core.
    pub cpu_milli: u64,
    /// Equal for pods with the same verdict and reason on each node.
    pub shape: ShapeId,
    /// Equal for pods whose claims get the same devices.
    pub claims_shape: ShapeId,
}

impl Demand {
    /// The needs of this pod.
    ///
    /// # Errors
    /// If the allocator cannot read a claim.
    pub fn of(objects: &Objects, pod: &Pod) -> Result<Self, ObjectError> {
        Self::of_subject(subject::of_pod(objects, pod), pod)
    }

    /// The needs of a running pod's successor: its claims without their devices, on any node.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_successor(objects: &Objects, pod: &Pod) -> Result<Self, ObjectError> {
        let mut subject = subject::of_pod(objects, pod);
        for wanted in &mut subject.claims {
            wanted.claim.status = None;
        }
        let successor = unbound(pod);
        subject.pod = Some(successor.clone());
        Self::of_subject(subject, &successor)
    }

    fn of_subject(subject: Subject, pod: &Pod) -> Result<Self, ObjectError> {
        let open: Vec<&Wanted> = subject.claims.iter().filter(|wanted| !wanted.is_allocated()).collect();
        let claims = outcome::converted(&open)?;
        let of_claims = claims_shape(&subject);
        let of_claims: Vec<&str> = of_claims.iter().map(String::as_str).collect();
        let claims_shape = ShapeId::of(of_claims.iter().copied());
        let of_pod = pod_shape(pod);
        let shape = ShapeId::of(of_pod.iter().map(String::as_str).chain(of_claims));
        let cpu_milli = Room::asked(pod).cpu_milli;
        let (subject, claims) = (Arc::new(subject), claims.into());
        Ok(Demand { claims, cpu_milli, shape, claims_shape, subject })
    }

    /// First obstacle to scheduling the pod, other than scheduling gates.
    pub fn obstacle(&self) -> Option<&PodObstacle> {
        let obstacles = self.subject.obstacles.iter();
        obstacles.into_iter().find(|obstacle| !matches!(obstacle, PodObstacle::SchedulingGate(_)))
    }

    /// Claims without an allocation.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// Whether any claim needs devices.
    pub fn is_open(&self) -> bool {
        !self.claims.is_empty()
    }

    /// Claims to be allocated on the node: open ones, except for extended resources served by its device plugin.
    pub fn on(&self, node: &Node) -> (Vec<&Wanted>, Cow<'_, [Claim]>) {
        let open: Vec<&Wanted> = self.subject.claims.iter().filter(|wanted| !wanted.is_allocated()).collect();
        if !open.iter().any(|wanted| wanted.is_served_by(node)) {
            return (open, Cow::Borrowed(&self.claims));
        }
        let both = open.into_iter().zip(&*self.claims).filter(|(wanted, _)| !wanted.is_served_by(node));
        let (wanted, claims): (Vec<&Wanted>, Vec<Claim>) =
            both.map(|(wanted, claim)| (wanted, claim.clone())).unzip();
        (wanted, Cow::Owned(claims))
    }

    /// Unallocated claims possibly shared with other pods: neither made from a template nor owned by a pod.
    pub fn shared(&self) -> impl Iterator<Item = Key> {
        let shared = |wanted: &&Wanted| {
            let mut owners = wanted.claim.metadata.owner_references.iter().flatten();
            let is_of_a_pod = owners.any(|owner| owner.kind == "Pod");
            wanted.made_from.is_none() && !is_of_a_pod && !wanted.is_allocated()
        };
        self.subject.claims.iter().filter(shared).map(|wanted| Key::from(&wanted.claim.metadata))
    }

    /// Least number of devices asked for.
    pub fn devices(&self) -> usize {
        let requests = self.claims.iter().flat_map(|claim| &claim.requests);
        let count =
            |ask: &tessera_allocator::claim::DeviceRequest| usize::try_from(ask.count.max(1)).unwrap_or(1);
        let devices = requests.map(|request| match &request.ask {
            Ask::Exactly(ask) => count(ask),
            Ask::FirstAvailable(alternatives) => alternatives.first().map_or(1, count),
            Ask::Unknown => 1,
        });
        devices.fold(0, usize::saturating_add)
    }

    /// Short text of the request: `4 x gpu.tessera.dev`.
    pub fn text(&self) -> String {
        text(&self.claims)
    }
}

/// The pod as before it was bound to a node.
fn unbound(pod: &Pod) -> Pod {
    let spec = pod.spec.clone().map(|spec| PodSpec { node_name: None, ..spec });
    Pod { spec, status: None, ..pod.clone() }
}

/// Short text of the claims' requests: `4 x gpu.tessera.dev`.
pub fn text(claims: &[Claim]) -> String {
    let mut parts = Vec::new();
    for request in claims.iter().flat_map(|claim| &claim.requests) {
        let (ask, more) = match &request.ask {
            Ask::Exactly(ask) => (ask, ""),
            Ask::FirstAvailable(alternatives) => match alternatives.first() {
                Some(first) => (first, " or less preferred"),
                None => continue,
            },
            Ask::Unknown => continue,
        };
        let count = if ask.is_all() { "all".to_owned() } else { ask.count.max(1).to_string() };
        parts.push(format!("{count} x {}{more}", ask.class));
    }
    parts.join(" + ")
}

/// All fields of the pod read by node checks.
fn pod_shape(pod: &Pod) -> Vec<String> {
    let spec = pod.spec.clone().unwrap_or_default();
    let spec = PodSpec {
        active_deadline_seconds: None,
        priority: None,
        preemption_policy: None,
        scheduling_gates: None,
        scheduling_group: None,
        resource_claims: None,
        scheduler_name: None,
        volumes: spec.volumes.filter(|volumes| !volumes.is_empty()),
        ..spec
    };
    let mut parts = vec![serde_json::to_string(&spec).unwrap_or_default()];
    if spec.volumes.is_some() {
        // A recreated pod may have other volumes.
        parts.push(format!("{:?} {:?}", pod.metadata.namespace, pod.metadata.uid));
    }
    if anti_affinity::has_any(pod) {
        parts.push(format!("{:?}", pod.metadata.namespace));
    }
    parts
}

/// All fields read by the allocator.
fn claims_shape(subject: &Subject) -> Vec<String> {
    let mut parts = Vec::new();
    for (place, wanted) in subject.claims.iter().enumerate() {
        let is_own = matches!(wanted.made_from, Some(MadeFrom::Template(_) | MadeFrom::ExtendedResources(_)))
            || wanted.claim.metadata.owner_references.is_some();
        if wanted.is_allocated() || !is_own {
            parts.push(format!("{:?}", Key::from(&wanted.claim.metadata)));
        }
        if wanted.is_allocated() {
            parts.push(serde_json::to_string(&wanted.claim.status).unwrap_or_default());
        }
        // Claims of one template are alike: repeating the spec for each would make the text many times as long.
        let spec = &wanted.claim.spec;
        parts.push(match subject.claims[..place].iter().position(|other| other.claim.spec == *spec) {
            Some(first) => format!("as {first}"),
            None => serde_json::to_string(spec).unwrap_or_default(),
        });
        parts.extend(wanted.extended_resources.iter().cloned());
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_that_no_number_holds_are_as_many_as_there_can_be() {
        let request = |name: &str| {
            json!({ "name": name, "exactly": { "deviceClassName": "gpu", "allocationMode": "ExactCount",
                "count": i64::MAX } })
        };
        let template = json!({ "metadata": { "name": "t", "namespace": "n" }, "spec": { "spec": { "devices": {
            "requests": [request("x"), request("y"), request("z")] } } } });
        let pod = json!({ "metadata": { "name": "p", "namespace": "n" }, "spec": { "containers": [],
            "resourceClaims": [{ "name": "c", "resourceClaimTemplateName": "t" }] } });
        let mut objects = Objects::default();
        let template = serde_json::from_value(template).unwrap();
        objects.templates.insert(Key::new("n", "t"), template);
        let demand = Demand::of(&objects, &serde_json::from_value(pod).unwrap()).unwrap();
        assert_eq!(demand.devices(), usize::MAX);
    }
}
