//! Why devices are or were not allocated: the obstacle of each device for every node and request, and helpful changes. The answer
//! whether something fits is always the allocator's own.

mod alternatives;
mod conjuncts;
mod constraint;
mod fleet;
mod given;
mod lower;
mod nearest;
mod obstacle;
mod request;
mod steering;
mod unmade;
mod unprepared;

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;
use tessera_allocator::claim::Claim;
use tessera_api::conversion::CONVERTED;
use tessera_api::taint;
use tessera_cluster::outcome::{self, NodeOutcome, Reason};
use tessera_cluster::subject::{Subject, Wanted};
use tessera_cluster::{Asker, Cluster, ObjectError};

use crate::api_server::{Controller, ControllerEvent, News};
use crate::subject;

pub use fleet::Fleet;
pub use given::Given;
pub use lower::LowerPriority;
pub use nearest::TRIES;
pub use obstacle::Obstacle;
pub use request::{DeviceVerdict, ReasonCount, RequestDiagnosis};
pub use steering::Steering;
pub use unmade::{ExceededQuota, ExceededResource, Unmade, lacks_claim};

/// Everything about a pod or claim.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `pod/NAME` or `claim/NAME`.
    pub subject: String,
    /// Extended resources in the pod's limits that became claims, by container: `{"train": "nvidia.com/gpu: 4"}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converted: Option<String>,
    /// Whether the subject is allocated, or fits on some node.
    pub fits: bool,
    /// Reasons for waiting: of the pod itself, and allocated devices whose preparation fails.
    pub obstacles: Vec<String>,
    /// A claim whose creation failed. The rest of the answer then assumes an existing claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmade: Option<Unmade>,
    /// Hints for the manifest: unknown names, with suggestions, and requests for more than needed.
    pub hints: Vec<String>,
    /// Allocated claims, with the reasons for their devices.
    pub given: Vec<Given>,
    /// All nodes, if a claim waits.
    pub nodes: Vec<NodeDiagnosis>,
    /// Changes sufficient for the subject to fit.
    pub nearest: Vec<Nearest>,
    /// Pods of lower priority in the way; nobody evicts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower: Option<LowerPriority>,
    /// The controller's part: its gate, and the node proposed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steering: Option<Steering>,
    /// News about the controller, where kube-scheduler cannot allocate and the controller may. The rest of the answer is then
    /// from the controller's point of view, with managed cards free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed: Option<Managed>,
    /// Nodes where not all changes were tried, for lack of time.
    pub untried: Vec<String>,
}

/// The controller's part in giving out managed cards.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Managed {
    /// Whether a controller runs, if readable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<Controller>,
    /// The controller's last Event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<ControllerEvent>,
}

/// A sufficient change, and its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nearest {
    /// For example `claim default/a (pod p) ends`; of many claims the first are named.
    pub change: String,
    /// All claims to end.
    pub claims: Vec<String>,
    /// Nodes where the change is sufficient.
    pub nodes: Vec<String>,
}

/// One node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeDiagnosis {
    /// The allocator's answer.
    #[serde(flatten)]
    pub outcome: NodeOutcome,
    /// Obstacles by request; empty if all fit or the node does not take the pod.
    pub requests: Vec<RequestDiagnosis>,
    /// Obstacles of several requests together.
    pub together: Vec<String>,
    /// If the subject fits, the alternatives skipped on this node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed_alternatives: Vec<RequestDiagnosis>,
}

impl NodeDiagnosis {
    /// Number of missing devices, each request looked at alone.
    pub fn missing(&self) -> usize {
        let of_request = |request: &RequestDiagnosis| {
            request.wanted.unwrap_or(request.devices).saturating_sub(request.free)
        };
        self.requests.iter().map(of_request).fold(0, usize::saturating_add)
    }
}

/// Explains. `news` is the controller's state in the cluster.
///
/// # Errors
/// An object is one an API server would not accept.
pub fn explain(
    cluster: &Cluster,
    subject: &Subject,
    news: Option<News>,
    asker: &mut Asker,
) -> Result<Explanation, ObjectError> {
    let mut explanation = Explanation {
        subject: subject::title(subject),
        converted: converted(subject),
        fits: false,
        obstacles: [subject::obstacles(cluster.objects(), subject), unprepared::of(subject)].concat(),
        unmade: unmade::of(subject, news.as_ref()),
        hints: Vec::new(),
        given: given::of(cluster, subject, asker)?,
        nodes: Vec::new(),
        nearest: Vec::new(),
        lower: None,
        steering: None,
        managed: None,
        untried: Vec::new(),
    };
    let is_waiting = subject.claims.iter().any(|wanted| !wanted.is_allocated());
    if !is_waiting {
        explanation.fits = explanation.obstacles.is_empty();
        explanation.steering = steering::of(cluster, subject, &[], news);
        return Ok(explanation);
    }
    let waiting: Vec<_> = subject.claims.iter().filter(|wanted| !wanted.is_allocated()).collect();
    let claims = outcome::converted(&waiting)?;
    let nodes = cluster.nodes();
    let outcomes = outcome::of_nodes(cluster, subject, asker)?;
    let may_go = explanation.obstacles.is_empty() && explanation.unmade.is_none();
    explanation.fits = may_go && outcomes.iter().any(|node| node.fits);
    let mut fleet = Fleet::new(cluster, &[], asker.kubernetes());
    explanation.hints = fleet.hints(&claims);
    for (node, outcome) in nodes.iter().zip(outcomes) {
        explanation.nodes.push(of_node(cluster, &mut fleet, subject, node, outcome, asker)?);
    }
    // Pods using the name of an extended resource cannot ask for alternatives.
    if waiting.iter().all(|wanted| wanted.extended_resources.is_empty()) {
        let hint = whole_card_first(cluster, &mut fleet, subject, &explanation.nodes, asker)?;
        explanation.hints.extend(hint);
    }
    explanation.hints.extend(unmanageable(&waiting, &explanation.nodes));
    explanation.steering = steering::of(cluster, subject, &explanation.nodes, news);
    if !explanation.nodes.iter().any(|node| node.outcome.fits) {
        (explanation.nearest, explanation.untried) =
            nearest::of(cluster, &mut fleet, subject, &nodes, &explanation.nodes, asker)?;
        explanation.lower = lower::of(cluster, subject, &explanation.nodes);
    }
    Ok(explanation)
}

impl Explanation {
    /// Whether an allocated device has a fault.
    pub fn has_fault(&self) -> bool {
        let devices = self.given.iter().flat_map(|given| &given.devices);
        devices.filter_map(|device| device.fault.as_deref()).any(|fault| fault != taint::MIG_LAYOUT_PENDING)
    }

    /// Whether a card is out of reach only because the controller allocates it.
    pub fn meets_managed(&self) -> bool {
        let verdicts =
            self.nodes.iter().flat_map(|node| &node.requests).flat_map(|request| &request.verdicts);
        verdicts.filter_map(|verdict| verdict.obstacle.as_ref()).any(Obstacle::is_managed)
    }
}

/// See [`Explanation::converted`].
fn converted(subject: &Subject) -> Option<String> {
    subject.pod.as_ref()?.metadata.annotations.as_ref()?.get(CONVERTED).cloned()
}

/// Reason for waiting if extended resources are requested of managed devices: nobody allocates them.
fn unmanageable(waiting: &[&Wanted], nodes: &[NodeDiagnosis]) -> Option<String> {
    let resources: Vec<&str> =
        waiting.iter().flat_map(|wanted| &wanted.extended_resources).map(String::as_str).collect();
    let verdicts = nodes.iter().flat_map(|node| &node.requests).flat_map(|request| &request.verdicts);
    let mut obstacles = verdicts.filter_map(|verdict| verdict.obstacle.as_ref());
    (!resources.is_empty() && obstacles.any(Obstacle::is_managed)).then(|| {
        format!(
            "managed cards do not serve extended resources ({}): kube-scheduler alone makes and allocates their \
             claims; use a ResourceClaim in the pod, have such pods converted (managed.convertExtendedResources of the \
             chart), or leave some cards Native or Steered",
            resources.join(", ")
        )
    })
}

/// Obstacles of the claims on `node`, or the alternatives skipped there.
fn of_node(
    cluster: &Cluster,
    fleet: &mut Fleet<'_>,
    subject: &Subject,
    node: &Node,
    outcome: NodeOutcome,
    asker: &mut Asker,
) -> Result<NodeDiagnosis, ObjectError> {
    let claims = outcome::converted(&outcome::to_allocate(subject, node))?;
    let passed_alternatives = alternatives::of_node(cluster, fleet, node, &claims, &outcome.claims, asker);
    let mut diagnosis =
        NodeDiagnosis { outcome, requests: Vec::new(), together: Vec::new(), passed_alternatives };
    if matches!(diagnosis.outcome.reason, Some(Reason::Devices(_) | Reason::Error(_))) {
        (diagnosis.requests, diagnosis.together) = diagnose(cluster, fleet, node, &claims, asker);
        diagnosis.together.extend(diagnosis.outcome.shortage.iter().map(|why| format!("besides, {why}")));
    }
    Ok(diagnosis)
}

/// The hint about whole cards coming first, for the first node where a claim would get one.
fn whole_card_first(
    cluster: &Cluster,
    fleet: &mut Fleet<'_>,
    subject: &Subject,
    diagnoses: &[NodeDiagnosis],
    asker: &mut Asker,
) -> Result<Option<String>, ObjectError> {
    let nodes = cluster.nodes();
    let has_card = |(_, diagnosis): &(_, &NodeDiagnosis)| {
        let mut claims = diagnosis.outcome.claims.iter();
        claims.any(|claim| alternatives::has_whole_card(fleet, claim.results()))
    };
    let Some((node, diagnosis)) = nodes.iter().zip(diagnoses).find(has_card) else { return Ok(None) };
    let claims = outcome::converted(&outcome::to_allocate(subject, node))?;
    let (by_claim, _) = request::diagnose(cluster, fleet, node, &claims, cluster.held(), asker);
    let mut by_claim = diagnosis.outcome.claims.iter().zip(&by_claim);
    Ok(by_claim
        .find_map(|(claim, requests)| alternatives::whole_card_first(fleet, claim.results(), requests)))
}

fn diagnose(
    cluster: &Cluster,
    fleet: &mut Fleet<'_>,
    node: &Node,
    claims: &[Claim],
    asker: &mut Asker,
) -> (Vec<RequestDiagnosis>, Vec<String>) {
    let (by_claim, troubles) = request::diagnose(cluster, fleet, node, claims, cluster.held(), asker);
    let mut requests = Vec::new();
    let mut together = Vec::new();
    for (claim, of_claim) in claims.iter().zip(by_claim) {
        together.extend(constraint::diagnose(fleet, claim, &of_claim));
        requests.extend(of_claim);
    }
    together.extend(troubles);
    let each_fits = requests.iter().all(|request| request.free >= request.wanted.unwrap_or(request.devices));
    if together.is_empty() && each_fits && !requests.is_empty() {
        together.push(
            "each request fits alone, but not all together: they need the same devices or counters"
                .to_owned(),
        );
    }
    (requests, together)
}
