//! Current holdings and possible placements, computed from objects alone by separate code. Nothing here calls the crates under
//! test, except for names of objects: an oracle sharing their index would share their faults.

mod devices;
mod fit;
mod holdings;
mod teams;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceRequest, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use tessera_cluster::{Key, Kind, Object};

pub use devices::{DeviceId, has_managed_devices, published};
pub use fit::{Offer, fit, fits};
pub use holdings::Holdings;
pub use teams::{OF_SOME_CARDS, PRODUCT_OF, Taken, Teams, borrows, is_exempt, taken};

/// Objects as seen by one observer.
pub type View = BTreeMap<(Kind, Key), Arc<Object>>;

pub fn of_kind(view: &View, kind: Kind) -> impl Iterator<Item = &Object> {
    let all = view.range((kind, Key::default())..).take_while(move |((other, _), _)| *other == kind);
    all.map(|(_, object)| object.as_ref())
}

pub fn pods(view: &View) -> impl Iterator<Item = &Pod> {
    of_kind(view, Kind::Pod).filter_map(|object| match object {
        Object::Pod(pod) => Some(pod),
        _ => None,
    })
}

pub fn claims(view: &View) -> impl Iterator<Item = &ResourceClaim> {
    of_kind(view, Kind::ResourceClaim).filter_map(|object| match object {
        Object::ResourceClaim(claim) => Some(claim),
        _ => None,
    })
}

pub fn nodes(view: &View) -> impl Iterator<Item = &Node> {
    of_kind(view, Kind::Node).filter_map(|object| match object {
        Object::Node(node) => Some(node),
        _ => None,
    })
}

fn slices(view: &View) -> impl Iterator<Item = &ResourceSlice> {
    of_kind(view, Kind::ResourceSlice).filter_map(|object| match object {
        Object::ResourceSlice(slice) => Some(slice),
        _ => None,
    })
}

pub fn pod<'v>(view: &'v View, key: &Key) -> Option<&'v Pod> {
    match view.get(&(Kind::Pod, key.clone()))?.as_ref() {
        Object::Pod(pod) => Some(pod),
        _ => None,
    }
}

pub fn node<'v>(view: &'v View, name: &str) -> Option<&'v Node> {
    nodes(view).find(|node| node.metadata.name.as_deref() == Some(name))
}

pub fn claim<'v>(view: &'v View, key: &Key) -> Option<&'v ResourceClaim> {
    match view.get(&(Kind::ResourceClaim, key.clone()))?.as_ref() {
        Object::ResourceClaim(claim) => Some(claim),
        _ => None,
    }
}

fn template<'v>(view: &'v View, key: &Key) -> Option<&'v ResourceClaimTemplate> {
    match view.get(&(Kind::ResourceClaimTemplate, key.clone()))?.as_ref() {
        Object::ResourceClaimTemplate(template) => Some(template),
        _ => None,
    }
}

pub fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

/// The claim's devices.
pub fn devices_of(claim: &ResourceClaim) -> impl Iterator<Item = DeviceId> {
    allocation(claim).into_iter().flat_map(devices_in)
}

/// The allocation's devices.
pub fn devices_in(allocation: &AllocationResult) -> impl Iterator<Item = DeviceId> {
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    results.map(|result| (result.pool.clone(), result.device.clone()))
}

/// The single node of an allocation.
pub fn node_of(allocation: &AllocationResult) -> Option<&str> {
    let terms = &allocation.node_selector.as_ref()?.node_selector_terms;
    let mut fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let field = fields.find(|field| field.key == "metadata.name")?;
    field.values.as_ref()?.first().map(String::as_str)
}

/// A claim of a pod.
#[derive(Clone, Copy)]
pub enum Asked<'v> {
    /// An existing claim.
    Claim(&'v ResourceClaim),
    /// A claim still to be made from this template.
    Template(&'v ResourceClaimTemplate),
}

impl<'v> Asked<'v> {
    /// The claim's name, if created already.
    pub fn key(self) -> Option<Key> {
        match self {
            Asked::Claim(claim) => Some(Key::from(&claim.metadata)),
            Asked::Template(_) => None,
        }
    }

    /// The claim's allocation, if any.
    pub fn allocation(self) -> Option<&'v AllocationResult> {
        match self {
            Asked::Claim(claim) => allocation(claim),
            Asked::Template(_) => None,
        }
    }

    fn requests(self) -> impl Iterator<Item = &'v DeviceRequest> {
        let spec = match self {
            Asked::Claim(claim) => claim.spec.as_ref(),
            Asked::Template(template) => template.spec.as_ref().and_then(|spec| spec.spec.as_ref()),
        };
        let devices = spec.and_then(|spec| spec.devices.as_ref());
        devices.into_iter().flat_map(|devices| devices.requests.iter().flatten())
    }
}

/// The pod's claims without duplicates; `None` if a claim or its template is missing.
pub fn asked<'v>(view: &'v View, pod: &Pod) -> Option<Vec<Asked<'v>>> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let of_name = |name: &str| Key::new(namespace.clone(), name);
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
    let mut names = Vec::new();
    let mut all = Vec::new();
    for reference in pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()) {
        let status = statuses.into_iter().flatten().find(|status| status.name == reference.name);
        let made = status.and_then(|status| status.resource_claim_name.as_ref());
        if let Some(name) = reference.resource_claim_name.as_ref().or(made) {
            if !names.contains(name) {
                names.push(name.clone());
                all.push(Asked::Claim(claim(view, &of_name(name))?));
            }
        } else {
            let name = reference.resource_claim_template_name.as_ref()?;
            all.push(Asked::Template(template(view, &of_name(name))?));
        }
    }
    Some(all)
}
