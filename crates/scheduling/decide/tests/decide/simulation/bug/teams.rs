//! Mistakes about quotas.

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use serde_json::json;
use tessera_api::gang::GROUP_MIN_LABEL;
use tessera_api::gpu_quota::{BORROW_LABEL, WhenSpent};
use tessera_cluster::{GpuQuota, Key, Kind, Object};
use tessera_decide::Observation;

use super::Bug;
use crate::objects::{DRIVER, read};
use crate::simulation::quotas::EXEMPT;

/// A claim of the same namespace that holds a card nobody knows: its charge is one card more.
fn ghost(claim: &Key) -> Key {
    claim.with_name(format!("ghost-of-{}", claim.name))
}

fn ghost_claim(claim: &Key) -> Observation {
    let allocation: AllocationResult = read(json!({ "devices": { "results": [
        { "request": "r", "driver": DRIVER, "pool": "nowhere", "device": "gpu-00" }] } }));
    let Key { namespace, name } = ghost(claim);
    let metadata = json!({ "name": name, "namespace": namespace, "uid": name });
    let mut claim: ResourceClaim = read(json!({ "metadata": metadata, "spec": {} }));
    claim.status.get_or_insert_default().allocation = Some(allocation);
    Observation::Applied(Box::new(claim.into()))
}

impl Bug {
    /// Replaces what the loop is to observe.
    pub(super) fn change_for_teams(self, object: &mut Object) {
        match (self, object) {
            (Bug::LimitNotChecked, Object::GpuQuota(GpuQuota { spec, .. })) => {
                spec.amounts.iter_mut().for_each(|amount| amount.limit = None);
            }
            (Bug::GuaranteeNotObserved, Object::GpuQuota(GpuQuota { metadata, spec, .. }))
                if metadata.name.as_deref() == Some("red") =>
            {
                spec.amounts.iter_mut().for_each(|amount| amount.guaranteed = None);
            }
            (Bug::GuaranteeOverrun, Object::GpuQuota(GpuQuota { spec, .. })) => {
                let more: tessera_api::quantity::Quantity = read(json!("8"));
                let cards = spec
                    .amounts
                    .iter_mut()
                    .filter(|amount| amount.name == "cards" && amount.guaranteed() > 0);
                cards.for_each(|amount| (amount.guaranteed, amount.limit) = (Some(more.clone()), None));
            }
            (Bug::HoursNotObserved, Object::GpuQuota(GpuQuota { spec, .. })) => {
                spec.budget.take_if(|budget| budget.when_spent == WhenSpent::Wait);
            }
            (Bug::LentOnlyNotObserved, Object::GpuQuota(GpuQuota { spec, .. })) => {
                spec.budget.take_if(|budget| budget.when_spent == WhenSpent::LentOnly);
            }
            (Bug::ExemptNotCharged, Object::ResourceClaim(claim)) => {
                let name = claim.metadata.name.clone().unwrap_or_default();
                let is_exempt = EXEMPT.1.iter().any(|pod| name.starts_with(&format!("{pod}-")));
                let allocation = claim.status.as_mut().and_then(|status| status.allocation.as_mut());
                let devices = allocation.filter(|_| is_exempt).and_then(|found| found.devices.as_mut());
                // Shares of nothing.
                for result in devices.into_iter().flat_map(|devices| devices.results.iter_mut().flatten()) {
                    result.share_id = Some(name.clone());
                }
            }
            (Bug::MinimumNotObserved, Object::Pod(pod))
                if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) =>
            {
                let labels = pod.metadata.labels.iter_mut();
                labels
                    .filter_map(|labels| labels.get_mut(GROUP_MIN_LABEL))
                    .for_each(|min| *min = "1".to_owned());
            }
            (Bug::PingPong, Object::GpuQuota(GpuQuota { spec, status, .. })) => {
                // The quotas here say when they were written last.
                let hours = status.as_ref().and_then(|status| status.hours.as_ref());
                let written: usize = hours.map_or(0, |hours| hours.as_of.bytes().map(usize::from).sum());
                spec.weight = if written.is_multiple_of(2) { 1 } else { 100 };
            }
            (Bug::ParentNotObserved, Object::GpuQuota(GpuQuota { spec, .. })) => spec.parent = None,
            (Bug::BorrowNotObserved, Object::Pod(pod)) => {
                pod.metadata.labels.iter_mut().for_each(|labels| drop(labels.remove(BORROW_LABEL)));
            }
            (Bug::LimitBeforeChoice, Object::ResourceClaim(claim)) => {
                let devices = claim.spec.as_mut().and_then(|spec| spec.devices.as_mut());
                let requests = devices.into_iter().flat_map(|devices| devices.requests.iter_mut().flatten());
                requests
                    .filter_map(|request| request.first_available.as_mut())
                    .for_each(|all| all.truncate(1));
            }
            _ => {}
        }
    }

    /// What the loop observes beside.
    pub fn observation_after(self, observation: &Observation) -> Option<Observation> {
        let (claim, is_held) = match observation {
            Observation::Applied(object) => match object.as_ref() {
                Object::ResourceClaim(claim) => (
                    Key::from(&claim.metadata),
                    claim.status.as_ref().is_some_and(|status| status.allocation.is_some()),
                ),
                _ => return None,
            },
            Observation::Deleted(Kind::ResourceClaim, claim) => (claim.clone(), false),
            _ => return None,
        };
        match self {
            Bug::ChargedTwice if is_held => Some(ghost_claim(&claim)),
            Bug::ChargedTwice => Some(Observation::Deleted(Kind::ResourceClaim, ghost(&claim))),
            Bug::ChargeNotReleased if is_held => {
                Some(Observation::Deleted(Kind::ResourceClaim, ghost(&claim)))
            }
            Bug::ChargeNotReleased if matches!(observation, Observation::Deleted(..)) => {
                Some(ghost_claim(&claim))
            }
            _ => None,
        }
    }
}
