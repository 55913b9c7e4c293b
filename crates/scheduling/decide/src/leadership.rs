//! Whether this replica may allocate, and claims that the API server refuses to change.

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_cluster::{ClaimExt, Key};
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use crate::term::{Lists, Term};

/// Cards change hands from kube-scheduler to this controller after this time, unless told.
const HANDOVER: Time = Time::from_secs(60);

/// This replica's term, and its lists of claims.
#[derive(Debug)]
pub(crate) struct Leadership {
    /// `None` while another replica leads.
    pub term: Option<Term>,
    pub lists: Lists,
    /// How long a card must have been tainted as managed before it is allocated.
    pub handover: Time,
}

impl Default for Leadership {
    fn default() -> Self {
        Leadership { term: None, lists: Lists::default(), handover: HANDOVER }
    }
}

/// Whether this term may allocate.
pub(crate) fn may_allocate(leadership: &Leadership) -> bool {
    leadership.term.as_ref().is_some_and(|term| term.is_fenced && leadership.lists.are_as_of(term.since))
}

pub(crate) fn needs_fence(leadership: &Leadership, claim: &ResourceClaim) -> bool {
    let Some(term) = &leadership.term else { return false };
    let annotations = claim.metadata.annotations.as_ref();
    let epoch = annotations.and_then(|all| all.get(EPOCH_ANNOTATION));
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    !claim.has_devices()
        && claim.metadata.deletion_timestamp.is_none()
        && !term.wrote(epoch)
        && !term.fenced.contains(uid)
        && refusal_of(leadership, claim).is_none()
}

/// The API server's reason for a recent refusal to change the claim, if still applicable.
pub(crate) fn refusal_of<'l>(leadership: &'l Leadership, claim: &ResourceClaim) -> Option<&'l str> {
    let refused = leadership.term.as_ref()?.refused.get(claim.metadata.uid.as_ref()?)?;
    let version = claim.metadata.resource_version.as_ref();
    (refused.needs_fence || Some(&refused.version) == version).then_some(refused.why.as_str())
}

/// Why the pod gets no devices, if one of its unallocated claims cannot be changed.
pub(crate) fn refused_claim_of(leadership: &Leadership, demand: &Demand) -> Option<String> {
    let open = demand.subject.claims.iter().filter(|wanted| !wanted.is_allocated());
    open.map(|wanted| &wanted.claim).find_map(|claim| {
        let why = refusal_of(leadership, claim)?;
        Some(format!(
            "the API server refuses to change its ResourceClaim {}, so that nothing can be allocated to it: {why}",
            Key::from(&claim.metadata)
        ))
    })
}
