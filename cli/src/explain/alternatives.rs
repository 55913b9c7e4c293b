//! Candidates before the allocated or allocatable devices: alternatives of `firstAvailable`, and whole cards.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult as AllocatedDevice;
use tessera_allocator::claim::{Ask, Claim};
use tessera_api::{DeviceType, attribute, counter};
use tessera_cel::{AttributeValue, DeviceView};
use tessera_cluster::outcome::ClaimOutcome;
use tessera_cluster::{Asker, Cluster};

use super::Fleet;
use super::request::{self, DeviceVerdict, RequestDiagnosis};
use crate::devices::DeviceId;

/// Alternatives not fitting on `node`, where the claims would get later ones.
pub fn of_node(
    cluster: &Cluster,
    fleet: &mut Fleet<'_>,
    node: &Node,
    claims: &[Claim],
    outcomes: &[ClaimOutcome],
    asker: &mut Asker,
) -> Vec<RequestDiagnosis> {
    if !claims.iter().zip(outcomes).any(|(claim, outcome)| is_later(claim, outcome.results())) {
        return Vec::new();
    }
    let (diagnoses, _) = request::diagnose(cluster, fleet, node, claims, cluster.held(), asker);
    outcomes
        .iter()
        .zip(&diagnoses)
        .flat_map(|(outcome, of_claim)| passed(outcome.results(), of_claim))
        .collect()
}

/// Whether any device is for an alternative other than its request's first.
fn is_later(claim: &Claim, devices: &[AllocatedDevice]) -> bool {
    let first = |request: &str| {
        claim.requests.iter().find(|asked| asked.name == request).and_then(|asked| match &asked.ask {
            Ask::FirstAvailable(alternatives) => alternatives.first(),
            _ => None,
        })
    };
    let mut alternatives = devices.iter().filter_map(|device| device.request.split_once('/'));
    alternatives.any(|(request, taken)| first(request).is_some_and(|first| first.name != taken))
}

/// The alternatives of one claim before the allocated ones.
pub fn passed(devices: &[AllocatedDevice], diagnoses: &[RequestDiagnosis]) -> Vec<RequestDiagnosis> {
    let mut passed: Vec<RequestDiagnosis> = Vec::new();
    for taken in devices.iter().map(|device| &device.request) {
        let Some((request, _)) = taken.split_once('/') else { continue };
        let alternatives = diagnoses.iter().filter(|diagnosis| {
            diagnosis.request.split_once('/').is_some_and(|(of_request, _)| of_request == request)
        });
        for earlier in alternatives.take_while(|diagnosis| diagnosis.request != *taken) {
            if passed.iter().all(|known| known.request != earlier.request) {
                passed.push(earlier.clone());
            }
        }
    }
    passed
}

/// Whether any device is a whole card not requested by an alternative.
pub fn has_whole_card(fleet: &Fleet<'_>, devices: &[AllocatedDevice]) -> bool {
    let is_whole = |device: &AllocatedDevice| {
        let AllocatedDevice { driver, pool, device, .. } = device.clone();
        fleet
            .place(&DeviceId { driver, pool, device })
            .is_some_and(|place| is_type(fleet, place, DeviceType::Gpu))
    };
    devices.iter().any(|device| !device.request.contains('/') && is_whole(device))
}

/// How to ask for less, if a whole card is taken only because of its order, and a free smaller partition would suffice.
pub fn whole_card_first(
    fleet: &Fleet<'_>,
    devices: &[AllocatedDevice],
    diagnoses: &[RequestDiagnosis],
) -> Option<String> {
    let would_do = |card: usize, verdict: &DeviceVerdict| {
        let Some(place) = verdict.place.filter(|_| verdict.obstacle.is_none()) else { return false };
        is_type(fleet, place, DeviceType::Mig) && memory_slices(fleet, place) < memory_slices(fleet, card)
    };
    let request = devices.iter().find_map(|device| {
        let diagnosis = diagnoses.iter().find(|diagnosis| diagnosis.request == device.request)?;
        let taken = diagnosis.verdicts.iter().position(|verdict| verdict.id.is_of(device))?;
        let card = diagnosis.verdicts[taken].place?;
        let is_first = has_whole_card(fleet, std::slice::from_ref(device))
            && diagnosis.verdicts[taken..].iter().any(|verdict| would_do(card, verdict));
        is_first.then_some(&device.request)
    })?;
    Some(format!(
        "request {request} names no type of device, and whole cards come first: if a partition is enough, ask with \
         firstAvailable for a partition, else a card (docs/devices.md, Order)"
    ))
}

/// How many of its card's memory slices a device takes.
fn memory_slices(fleet: &Fleet<'_>, place: usize) -> usize {
    let consumptions = fleet.places[place].device.consumes_counters.iter().flatten();
    let counters = consumptions.flat_map(|consumption| consumption.counters.keys());
    counters.filter(|name| counter::memory_slice_number(name).is_some()).count()
}

fn is_type(fleet: &Fleet<'_>, place: usize, device_type: DeviceType) -> bool {
    let device = fleet.evaluated(place);
    let known = device.and_then(|device| device.attribute(device.driver(), attribute::TYPE));
    matches!(known, Some(AttributeValue::String(known)) if known == device_type.as_str())
}
