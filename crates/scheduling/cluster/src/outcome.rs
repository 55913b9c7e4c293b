//! The result for every node.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult};
use serde::Serialize;
use tessera_allocator::claim::Claim;
use tessera_allocator::error::AllocateError;
use tessera_allocator::node::NodeSelector;

use crate::claim::{AllocationExt, ClaimExt};
use crate::cluster::{Asker, Cluster};
use crate::error::ObjectError;
use crate::node_fit::{self, Refusal};
use crate::objects::reference;
use crate::subject::{MadeFrom, Subject, Wanted};

/// The result for one node.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOutcome {
    /// The node's name.
    pub node: String,
    /// Whether the pod could run there.
    pub fits: bool,
    /// Why the pod could not run there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Why there is no room besides devices, whether or not the devices suffice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortage: Option<String>,
    /// Allocations for the claims without devices, given enough room.
    pub claims: Vec<ClaimOutcome>,
}

/// Why a node is ruled out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind", content = "message")]
pub enum Reason {
    /// The node does not take the pod, whatever its devices.
    Node(String),
    /// Not enough devices.
    Devices(String),
    /// The devices suffice, but room on the node does not.
    Room(String),
    /// kube-scheduler ends the attempt with this error without trying other nodes.
    Error(String),
}

/// Allocation for one claim.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimOutcome {
    /// `namespace/name`
    pub claim: String,
    /// Source of a claim to be created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_from: Option<MadeFrom>,
    /// The allocation kube-scheduler would write to the claim's status.
    pub allocation: AllocationResult,
}

impl ClaimOutcome {
    /// The devices.
    pub fn results(&self) -> &[DeviceRequestAllocationResult] {
        self.allocation.results()
    }
}

/// The results for all nodes, by name.
///
/// # Errors
/// A claim contains an invalid quantity.
pub fn of_nodes(
    cluster: &Cluster,
    subject: &Subject,
    asker: &mut Asker,
) -> Result<Vec<NodeOutcome>, ObjectError> {
    cluster.nodes().iter().map(|node| of_node(cluster, subject, node, asker)).collect()
}

/// The result for one node.
///
/// # Errors
/// A claim contains an invalid quantity.
pub fn of_node(
    cluster: &Cluster,
    subject: &Subject,
    node: &Node,
    asker: &mut Asker,
) -> Result<NodeOutcome, ObjectError> {
    let mut outcome = NodeOutcome {
        node: node.metadata.name.clone().unwrap_or_default(),
        fits: false,
        reason: None,
        shortage: None,
        claims: Vec::new(),
    };
    if let Some(reason) = refusal(subject, node) {
        outcome.reason = Some(Reason::Node(reason.to_string()));
        return Ok(outcome);
    }
    let shortage = subject.pod.as_ref().and_then(|pod| cluster.shortage(pod, node));
    outcome.shortage = shortage.map(|refusal| refusal.to_string());
    let wanted = to_allocate(subject, node);
    let claims = converted(&wanted)?;
    match cluster.allocate(node, &claims, cluster.held(), asker) {
        Ok(Some(allocations)) => {
            outcome.fits = outcome.shortage.is_none();
            outcome.reason = outcome.shortage.clone().map(Reason::Room);
            outcome.claims = wanted
                .iter()
                .zip(allocations)
                .map(|(wanted, allocation)| ClaimOutcome {
                    claim: reference(&wanted.claim),
                    made_from: wanted.made_from.clone(),
                    allocation,
                })
                .collect();
        }
        Ok(None) => outcome.reason = Some(Reason::Devices("cannot allocate all claims".to_owned())),
        Err(error @ AllocateError::InvalidPools) => outcome.reason = Some(Reason::Devices(error.to_string())),
        Err(error) => outcome.reason = Some(Reason::Error(error.to_string())),
    }
    Ok(outcome)
}

/// The claims to be allocated on the node.
pub fn to_allocate<'s>(subject: &'s Subject, node: &Node) -> Vec<&'s Wanted> {
    let claims = subject.claims.iter();
    claims.filter(|wanted| !wanted.is_allocated() && !wanted.is_served_by(node)).collect()
}

/// Claims in the allocator's form.
///
/// # Errors
/// A claim contains an invalid quantity.
pub fn converted(wanted: &[&Wanted]) -> Result<Vec<Claim>, ObjectError> {
    let one = |wanted: &&Wanted| {
        Claim::try_from(&wanted.claim).map_err(|error| ObjectError::of_claim(&wanted.claim, error))
    };
    wanted.iter().map(one).collect()
}

/// Why the node is ruled out, independent of free devices.
pub fn refusal(subject: &Subject, node: &Node) -> Option<Refusal> {
    if let Some(reason) = subject.pod.as_ref().and_then(|pod| node_fit::refusal(pod, node)) {
        return Some(reason);
    }
    subject.claims.iter().find_map(|wanted| {
        let allocation = wanted.claim.allocation()?;
        let selector = NodeSelector::from(allocation.node_selector.as_ref()?);
        match selector.matches(&node.into()) {
            Ok(true) => None,
            _ => Some(Refusal::ClaimElsewhere(reference(&wanted.claim))),
        }
    })
}
