//! Why an allocated claim got its devices.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult};
use serde::Serialize;
use tessera_allocator::claim::Claim;
use tessera_allocator::held::Held;
use tessera_allocator::node::NodeSelector;
use tessera_api::attribute;
use tessera_cel::{AttributeValue, DeviceView};
use tessera_cluster::outcome::converted;
use tessera_cluster::subject::{Subject, Wanted};
use tessera_cluster::{AllocationExt, Asker, ClaimExt, Cluster, ObjectError, reference};

use super::request::{self, DeviceVerdict, ReasonCount, RequestDiagnosis, counted};
use super::{Fleet, alternatives};
use crate::devices;

/// An allocated claim.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Given {
    /// `namespace/name`
    pub claim: String,
    /// Its users: usually pods.
    pub reserved_for: Vec<String>,
    /// The node of its devices, if a single one.
    pub node: Option<String>,
    /// Its devices.
    pub devices: Vec<GivenDevice>,
    /// The alternatives before the allocated ones, with today's obstacles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed_alternatives: Vec<RequestDiagnosis>,
    /// How to ask for less, if less would suffice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// kube-scheduler's allocation today if the claim had none, in words.
    pub today: String,
}

/// An allocated device, and why this one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GivenDevice {
    /// The request of the device.
    pub request: String,
    /// Driver, pool and name.
    pub device: String,
    /// A description for people.
    pub description: String,
    /// Obstacles, today and without this claim, of the devices before this one in kube-scheduler's order.
    pub passed_over: Vec<ReasonCount>,
    /// Number of devices before this one without an obstacle today: freed since, or ruled out by a constraint or another request.
    pub free_before: usize,
    /// Fault of the device, from its taint: `xid-79`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Whether the device is still published.
    pub published: bool,
    /// Devices before this one, without the claim's own.
    pub before: Vec<DeviceVerdict>,
}

/// The allocated claims of a pod, or the claim.
///
/// # Errors
/// A claim contains an invalid quantity.
pub fn of(cluster: &Cluster, subject: &Subject, asker: &mut Asker) -> Result<Vec<Given>, ObjectError> {
    let mut given = Vec::new();
    for wanted in &subject.claims {
        let Some(allocation) = wanted.claim.allocation() else {
            continue;
        };
        given.push(one(cluster, wanted, allocation, asker)?);
    }
    Ok(given)
}

fn one(
    cluster: &Cluster,
    wanted: &Wanted,
    allocation: &AllocationResult,
    asker: &mut Asker,
) -> Result<Given, ObjectError> {
    let claim = &wanted.claim;
    let mut fleet = Fleet::new(cluster, &[reference(claim)], asker.kubernetes());
    let claims = converted(&[wanted])?;
    let node = node_of(cluster, allocation);
    let held = cluster.held_without(&[claim])?;
    let requests = match &node {
        Some(node) => request::diagnose(cluster, &mut fleet, node, &claims, &held, asker).0.concat(),
        None => Vec::new(),
    };
    let own = allocation.results();
    let devices = own.iter().map(|result| device(cluster, &fleet, &requests, own, result)).collect();
    let today = match &node {
        Some(node) => today(cluster, node, &claims, allocation, &held, asker),
        None => "it is not bound to one node".to_owned(),
    };
    // Pods using the name of an extended resource cannot ask for alternatives.
    let may_ask = wanted.extended_resources.is_empty();
    Ok(Given {
        claim: reference(claim),
        reserved_for: claim
            .users()
            .iter()
            .map(|user| format!("{}/{}", user.resource.trim_end_matches('s'), user.name))
            .collect(),
        node: node.and_then(|node| node.metadata.name),
        devices,
        passed_alternatives: alternatives::passed(own, &requests),
        hint: may_ask.then(|| alternatives::whole_card_first(&fleet, own, &requests)).flatten(),
        today,
    })
}

/// The only node allowed by the allocation.
fn node_of(cluster: &Cluster, allocation: &AllocationResult) -> Option<Node> {
    let selector = NodeSelector::from(allocation.node_selector.as_ref()?);
    let mut possible = cluster.nodes();
    possible.retain(|node| selector.matches(&(&**node).into()).unwrap_or(false));
    let only = possible.pop()?;
    possible.is_empty().then(|| only.into_owned())
}

fn device(
    cluster: &Cluster,
    fleet: &Fleet<'_>,
    requests: &[RequestDiagnosis],
    own: &[DeviceRequestAllocationResult],
    result: &DeviceRequestAllocationResult,
) -> GivenDevice {
    let is_it = |verdict: &DeviceVerdict| verdict.id.is_of(result);
    let request = requests.iter().find(|request| request.request == result.request);
    let verdicts = request.map(|request| request.verdicts.as_slice()).unwrap_or_default();
    let place = verdicts.iter().position(is_it);
    let description =
        place.and_then(|place| fleet.evaluated(verdicts[place].place?)).map(describe).unwrap_or_default();
    let is_own = |verdict: &&DeviceVerdict| own.iter().any(|result| verdict.id.is_of(result));
    let before: Vec<DeviceVerdict> =
        verdicts[..place.unwrap_or(0)].iter().filter(|verdict| !is_own(verdict)).cloned().collect();
    GivenDevice {
        request: result.request.clone(),
        device: format!("{}/{}/{}", result.driver, result.pool, result.device),
        description,
        passed_over: counted(&before),
        free_before: before.iter().filter(|verdict| verdict.obstacle.is_none()).count(),
        fault: fault(cluster, result),
        published: place.is_some(),
        before,
    }
}

/// Fault of a device, from the newest slices of its pool.
fn fault(cluster: &Cluster, result: &DeviceRequestAllocationResult) -> Option<String> {
    let slices = cluster.objects().slices.values();
    let of_pool =
        slices.filter(|slice| slice.spec.driver == result.driver && slice.spec.pool.name == result.pool);
    let places = devices::devices(of_pool);
    let place = places.iter().find(|place| place.id.device == result.device)?;
    devices::fault(place.device, &result.driver)
}

/// A description of a device for people.
fn describe(device: &tessera_cel::Device) -> String {
    let driver = device.driver();
    let text = |name: &str| match device.attribute(driver, name) {
        Some(AttributeValue::String(value)) => Some(value.to_owned()),
        _ => None,
    };
    let pool = text(attribute::GPU_POOL).map(|pool| format!("GPU pool {pool}"));
    [text("type"), text("profile"), text("productName"), pool]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
}

/// Whether kube-scheduler would allocate the same again.
fn today(
    cluster: &Cluster,
    node: &Node,
    claims: &[Claim],
    allocation: &AllocationResult,
    held: &Held,
    asker: &mut Asker,
) -> String {
    let names = |results: &[DeviceRequestAllocationResult]| {
        results.iter().map(|result| result.device.clone()).collect::<Vec<_>>()
    };
    match cluster.allocate(node, claims, held, asker) {
        Ok(Some(allocations)) => {
            let now = allocations.first().map(|allocation| names(allocation.results())).unwrap_or_default();
            if now == names(allocation.results()) {
                "it would get the same devices again".to_owned()
            } else {
                format!("it would now get {} there", now.join(", "))
            }
        }
        Ok(None) => "it would no longer fit there".to_owned(),
        Err(error) => format!("kube-scheduler would now fail with an error: {error}"),
    }
}
