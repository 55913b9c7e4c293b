//! Events for claims and their pods about waiting and failed work.

use k8s_openapi::api::core::v1::ObjectReference;
use tessera_dra_kubelet::ClaimReference;
use tessera_kube_util::error_text::with_causes;
use tessera_kube_util::events::{Content, Events, Severity};

use crate::prepare::{Operation, PrepareError};

/// Sends an Event about work waiting for `error` to pass: to the claim and, for Prepare, to the pods unable to start.
pub(in crate::prepare) fn waiting(
    events: &Events,
    operation: Operation,
    claim: &ClaimReference,
    pods: &[ObjectReference],
    error: &PrepareError,
) {
    let note = format!("{}; waiting for this to pass", with_causes(error));
    let content = of_work(operation, error.waiting_reason(), &note);
    for object in std::iter::once(&claim_reference(claim)).chain(pods) {
        events.send(&content, object);
    }
}

/// Sends an Event about failed work to the claim. The kubelet itself reports the failure to the pod.
pub(in crate::prepare) fn failed(
    events: &Events,
    operation: Operation,
    claim: &ClaimReference,
    error: &PrepareError,
) {
    let reason = match operation {
        Operation::Prepare => "PrepareFailed",
        Operation::Unprepare => "UnprepareFailed",
    };
    events.send(&of_work(operation, reason, &with_causes(error)), &claim_reference(claim));
}

/// A claim, in the form of a reference for Events.
pub(in crate::prepare) fn claim_reference(claim: &ClaimReference) -> ObjectReference {
    ObjectReference {
        api_version: Some("resource.k8s.io/v1".to_owned()),
        kind: Some("ResourceClaim".to_owned()),
        namespace: Some(claim.namespace.clone()),
        name: Some(claim.name.clone()),
        uid: Some(claim.uid.clone()),
        ..ObjectReference::default()
    }
}

const fn of_work<'a>(operation: Operation, reason: &'static str, note: &'a str) -> Content<'a> {
    let action = match operation {
        Operation::Prepare => "Prepare",
        Operation::Unprepare => "Unprepare",
    };
    Content { severity: Severity::Warning, action, reason, note, occurrence: None }
}
