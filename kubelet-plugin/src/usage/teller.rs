//! Tells of the use of claims: conditions of their devices, and Events on their pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use tessera_kube_util::events::{Content, Events, Severity};
use tokio::sync::watch;

use super::report::{ClaimReport, Report};
use crate::prepare::{ClaimReference, Preparer, UsageCondition};

/// Tells of claims.
pub struct Teller {
    /// Writes conditions.
    preparer: watch::Receiver<Option<Preparer>>,
    /// Sends Events of pods.
    events: Events,
    /// Conditions to write, by the claim's UID.
    unwritten: BTreeMap<String, (ClaimReference, UsageCondition)>,
    /// The API server refuses conditions, and the log says so.
    is_refused: bool,
}

impl Teller {
    /// Tells by this preparer, and by these Events.
    #[must_use]
    pub fn new(preparer: watch::Receiver<Option<Preparer>>, events: Events) -> Self {
        Self { preparer, events, unwritten: BTreeMap::new(), is_refused: false }
    }

    /// Sends an Event of each pod of the claim.
    pub(super) fn warn(&self, claim: &ClaimReport, reason: &'static str, message: &str) {
        let note = format!("claim {}: {message}", claim.name);
        let severity = Severity::Warning;
        let content = Content { severity, action: "Watch", reason, note: &note, occurrence: None };
        for pod in &claim.pods {
            let pod = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: Some(claim.namespace.clone()),
                name: Some(pod.name.clone()),
                uid: Some(pod.uid.clone()),
                ..ObjectReference::default()
            };
            self.events.send(&content, &pod);
        }
    }

    /// The claim has this condition from the next [`Self::write`] on.
    pub(super) fn set(&mut self, claim: &ClaimReport, condition: UsageCondition) {
        let ClaimReport { namespace, name, uid, .. } = claim.clone();
        self.unwritten.insert(uid.clone(), (ClaimReference { namespace, name, uid }, condition));
    }

    /// Writes the conditions of the report's claims. While the API server is away they stay for the next report, which must not wait for
    /// them.
    pub(super) async fn write(&mut self, report: &Report) {
        self.unwritten.retain(|uid, _| report.claims.iter().any(|claim| claim.uid == *uid));
        let Some(preparer) = self.preparer.borrow().clone() else { return };
        while let Some((uid, (claim, condition))) = self.unwritten.pop_first() {
            let Err(error) = preparer.write_usage_condition(&claim, &condition).await else {
                self.is_refused = false;
                continue;
            };
            if !std::mem::replace(&mut self.is_refused, true) {
                tracing::warn!(%claim, %error, "cannot write in status.devices how a claim is used");
            }
            if error.may_pass() {
                self.unwritten.insert(uid, (claim, condition));
                return;
            }
        }
    }
}
