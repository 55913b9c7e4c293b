//! The obstacles of one request on one node.

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;
use tessera_allocator::claim::{Ask, Claim, DeviceRequest};
use tessera_allocator::held::Held;
use tessera_cluster::{Asker, Cluster};

use super::{Fleet, Obstacle};
use crate::devices::DeviceId;

/// One request, or one alternative of a request.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestDiagnosis {
    /// `namespace/name` of the claim.
    pub claim: String,
    /// `request` or `request/alternative`.
    pub request: String,
    /// Its class.
    pub class: String,
    /// Whether the class exists.
    pub class_exists: bool,
    /// Number of devices; `None` for all matching devices.
    pub wanted: Option<usize>,
    /// Number of devices of the node.
    pub devices: usize,
    /// Number of devices without an obstacle.
    pub free: usize,
    /// The reasons, each with its number of devices, most first.
    pub reasons: Vec<ReasonCount>,
    /// Every device.
    pub verdicts: Vec<DeviceVerdict>,
}

/// A reason, and the number of devices ruled out.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReasonCount {
    /// The reason.
    pub reason: String,
    /// Number of devices.
    pub devices: usize,
    /// Claims in the way, if any.
    pub by: Vec<String>,
    /// Devices of these claims consuming counters of the devices counted here: a card in use as a whole or in part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
}

/// One device.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceVerdict {
    /// Its name.
    #[serde(flatten)]
    pub id: DeviceId,
    /// Its first obstacle.
    pub obstacle: Option<Obstacle>,
    /// Its index in the fleet.
    #[serde(skip)]
    pub place: Option<usize>,
}

/// All requests on a node, by claim, and problems of pools.
pub fn diagnose(
    cluster: &Cluster,
    fleet: &mut Fleet<'_>,
    node: &Node,
    claims: &[Claim],
    held: &Held,
    asker: &mut Asker,
) -> (Vec<Vec<RequestDiagnosis>>, Vec<String>) {
    let Ok(report) = cluster.explain(node, claims, held, asker) else {
        // The allocator's answer for the node is the same error.
        return (vec![Vec::new(); claims.len()], Vec::new());
    };
    let mut diagnoses = vec![Vec::new(); claims.len()];
    for found in report.requests {
        let claim = &claims[found.claim];
        let asked = request_of(claim, &found.request);
        let class = asked.map(|asked| asked.class.clone()).unwrap_or_default();
        let is_all = asked.is_some_and(DeviceRequest::is_all);
        let verdicts: Vec<DeviceVerdict> = found
            .devices
            .into_iter()
            .map(|found| {
                let id = DeviceId::from(found.device);
                DeviceVerdict {
                    obstacle: found.reason.map(|reason| fleet.obstacle(&id, reason)),
                    place: fleet.place(&id),
                    id,
                }
            })
            .collect();
        diagnoses[found.claim].push(RequestDiagnosis {
            claim: claim.reference(),
            request: found.request,
            class_exists: fleet.has_class(&class),
            class,
            wanted: (!is_all).then_some(usize::try_from(found.count).unwrap_or(0)),
            devices: verdicts.len(),
            free: verdicts.iter().filter(|verdict| verdict.obstacle.is_none()).count(),
            reasons: counted(&verdicts),
            verdicts,
        });
    }
    let troubles = report.unusable_pools.into_iter().map(|pool| match pool.fault {
        None => format!("pool {}/{} is being updated: slices are missing", pool.driver, pool.pool),
        Some(fault) => format!("pool {}/{} is invalid: {fault}", pool.driver, pool.pool),
    });
    (diagnoses, troubles.collect())
}

/// The request with this name: `request` or `request/alternative`.
pub fn request_of<'c>(claim: &'c Claim, name: &str) -> Option<&'c DeviceRequest> {
    let (base, alternative) = name.split_once('/').map_or((name, None), |(base, sub)| (base, Some(sub)));
    let request = claim.requests.iter().find(|request| request.name == base)?;
    match &request.ask {
        Ask::Exactly(exactly) => Some(exactly),
        Ask::FirstAvailable(alternatives) => {
            alternatives.iter().find(|request| Some(request.name.as_str()) == alternative)
        }
        Ask::Unknown => None,
    }
}

/// The reasons with their numbers of devices ruled out, most first.
pub fn counted(verdicts: &[DeviceVerdict]) -> Vec<ReasonCount> {
    let mut reasons: Vec<ReasonCount> = Vec::new();
    for obstacle in verdicts.iter().filter_map(|verdict| verdict.obstacle.as_ref()) {
        // Grouped by claims: a card has many counters, and a fleet many cards.
        let beside = obstacle.beside();
        let reason = if beside.is_empty() { obstacle.summary() } else { "too little is left".to_owned() };
        let is_same = |counted: &&mut ReasonCount| {
            counted.reason == reason && (beside.is_empty() || counted.by == obstacle.by())
        };
        let counted = match reasons.iter_mut().find(is_same) {
            Some(counted) => counted,
            None => {
                reasons.push(ReasonCount { reason, devices: 0, by: Vec::new(), beside: Vec::new() });
                let last = reasons.len() - 1;
                &mut reasons[last]
            }
        };
        counted.devices += 1;
        for device in beside {
            if !counted.beside.contains(device) {
                counted.beside.push(device.clone());
            }
        }
        for claim in obstacle.by() {
            if !counted.by.contains(claim) {
                counted.by.push(claim.clone());
            }
        }
    }
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.devices));
    reasons
}
