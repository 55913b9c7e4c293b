//! What claims get of managed cards, which this controller allocates.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceToleration};
use tessera_allocator::claim::{Ask, Claim};
use tessera_allocator::error::AllocateError;
use tessera_api::{DeviceName, PciBusId, managed};
use tessera_cluster::outcome;
use tessera_cluster::subject::Wanted;

use crate::fleet::NodeIndex;
use crate::ranking::View;

/// Which of the claims ask for devices of managed cards on the node. Claims of extended resources are made by kube-scheduler
/// itself, so they cannot be; those with admin access take nothing.
pub(crate) fn claims(
    wanted: &[&Wanted],
    claims: &[Claim],
    node: &Node,
    index: NodeIndex,
    view: &mut View<'_>,
) -> Result<Vec<bool>, AllocateError> {
    let mut are_managed = vec![false; claims.len()];
    if cards(index, view).is_empty() {
        return Ok(are_managed);
    }
    for (place, (wanted, claim)) in wanted.iter().zip(claims).enumerate() {
        are_managed[place] = wanted.extended_resources.is_empty()
            && !has_admin_access(claim)
            && view.cluster.has_what_is_asked(node, std::slice::from_ref(claim), view.driver, view.asker)?;
    }
    Ok(are_managed)
}

/// What the claims get on the node: the managed ones of managed cards alone, the others as kube-scheduler would.
pub(crate) fn plan(
    claims: &[Claim],
    are_managed: &[bool],
    node: &Node,
    index: NodeIndex,
    view: &mut View<'_>,
) -> Result<Option<Vec<AllocationResult>>, AllocateError> {
    let of = |managed: bool| {
        let both = claims.iter().zip(are_managed);
        both.filter(|(_, is_managed)| **is_managed == managed).map(|(claim, _)| claim.clone()).collect()
    };
    let (mut ours, others): (Vec<Claim>, Vec<Claim>) = (of(true), of(false));
    ours.iter_mut().for_each(tolerate);
    let Some(mut ours) = view.cluster.plan(node, &ours, view.asker)? else { return Ok(None) };
    let cards = cards(index, view);
    if !ours.iter().all(|allocation| is_of(allocation, &cards, view.driver)) {
        return Ok(None);
    }
    ours.iter_mut().for_each(forget_toleration);
    let Some(others) = view.cluster.plan(node, &others, view.asker)? else { return Ok(None) };
    let (mut ours, mut others) = (ours.into_iter(), others.into_iter());
    let next = |is_managed: &bool| if *is_managed { ours.next() } else { others.next() };
    Ok(are_managed.iter().map(next).collect())
}

fn cards(index: NodeIndex, view: &View<'_>) -> BTreeSet<PciBusId> {
    let handed_over = view.handed_over;
    handed_over.map_or_else(BTreeSet::new, |before| view.fleet.node(index).managed_cards(before))
}

fn has_admin_access(claim: &Claim) -> bool {
    claim.requests.iter().any(|request| match &request.ask {
        Ask::Exactly(ask) => ask.has_admin_access(),
        Ask::FirstAvailable(_) | Ask::Unknown => false,
    })
}

fn is_of(allocation: &AllocationResult, cards: &BTreeSet<PciBusId>, driver: &str) -> bool {
    outcome::results(allocation).iter().all(|result| {
        let name = result.device.parse::<DeviceName>();
        result.driver == driver && name.is_ok_and(|name| cards.contains(&name.card()))
    })
}

/// Lets the requests have managed devices.
fn tolerate(claim: &mut Claim) {
    for request in &mut claim.requests {
        match &mut request.ask {
            Ask::Exactly(ask) => ask.tolerations.push(toleration()),
            Ask::FirstAvailable(alternatives) => {
                alternatives.iter_mut().for_each(|ask| ask.tolerations.push(toleration()));
            }
            Ask::Unknown => {}
        }
    }
}

/// The allocation as if nothing had been tolerated: this is between the plugin and the controller.
fn forget_toleration(allocation: &mut AllocationResult) {
    let results = allocation.devices.iter_mut().flat_map(|devices| devices.results.iter_mut().flatten());
    for result in results {
        if let Some(tolerations) = &mut result.tolerations {
            tolerations.retain(|found| *found != toleration());
            if tolerations.is_empty() {
                result.tolerations = None;
            }
        }
    }
}

fn toleration() -> DeviceToleration {
    DeviceToleration {
        key: Some(managed::TAINT_KEY.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..DeviceToleration::default()
    }
}
