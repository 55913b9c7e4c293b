//! Reports faults of cards as Events of the node, and of the affected claims and pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use tessera_api::health::{HealthClass, HealthEffect, HealthFault, HealthPolicy, OwnRecovery, Recovery};
use tessera_api::{DeviceName, PciBusId};
use tessera_inventory::Machine;
use tessera_inventory::machine::Card;
use tessera_journal::ClaimRecord;
use tessera_kube_util::events::{Content, Events, NodeEvents, Severity};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::prepare::Preparer;
use crate::reset;

/// Reasons of the Events.
const UNHEALTHY: &str = "CardUnhealthy";
const HEALTHY: &str = "CardHealthy";

/// Follows the machine and reports faults as they come and go.
pub struct HealthEvents {
    /// Sends Events of claims and pods.
    pub events: Events,
    /// Sends Events of the node.
    pub of_node: NodeEvents,
    /// Effects of faults.
    pub policy: HealthPolicy,
    /// The machine.
    pub machines: watch::Receiver<Option<Arc<Machine>>>,
    /// Gives the prepared claims.
    pub preparer: watch::Receiver<Option<Preparer>>,
}

/// The reported faults of each card.
type Told = BTreeMap<PciBusId, BTreeSet<HealthFault>>;

impl HealthEvents {
    /// Reports until the machine is followed no longer, or `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut told = Told::new();
        loop {
            let machine = self.machines.borrow_and_update().clone();
            if let Some(machine) = machine {
                self.tell(&machine, &mut told).await;
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = self.machines.changed() => if changed.is_err() { break },
            }
        }
        shutdown.cancelled().await;
    }

    async fn tell(&self, machine: &Machine, told: &mut Told) {
        let mut claims = None;
        for card in &machine.cards {
            let before = told.remove(&card.pci).unwrap_or_default();
            let faults: Vec<HealthFault> =
                card.all_faults().filter(|fault| self.policy.effect(fault) != HealthEffect::Off).collect();
            let now: BTreeSet<HealthFault> = faults.iter().map(identity).collect();
            let name = DeviceName::Card(card.pci);
            for fault in faults.iter().filter(|fault| !before.contains(&identity(fault))) {
                let effect = self.policy.effect(fault);
                // Before anything else: an eviction may end them at once.
                if claims.is_none() {
                    claims = Some(self::claims(&self.preparer).await);
                }
                let way = way(fault, card, &self.policy);
                let note = sentences(&format!("{name} {fault}"), effect, fault, way);
                self.of_node.send(severity(effect), "Discover", UNHEALTHY, &note).await;
                self.tell_users(card, fault, effect, claims.as_deref().unwrap_or_default());
            }
            let present: BTreeSet<String> = now.iter().map(HealthFault::name).collect();
            let gone: BTreeSet<String> = before.iter().map(HealthFault::name).collect();
            let gone: Vec<String> = gone.difference(&present).cloned().collect();
            if !gone.is_empty() {
                let rest = if now.is_empty() { "it is healthy" } else { "other faults remain" };
                let note = format!("{name} has no {} any more: {rest}", gone.join(", "));
                self.of_node.send(Severity::Normal, "Discover", HEALTHY, &note).await;
            }
            told.insert(card.pci, now);
        }
    }

    fn tell_users(
        &self,
        card: &Card,
        fault: &HealthFault,
        effect: HealthEffect,
        claims: &[Arc<ClaimRecord>],
    ) {
        for claim in claims {
            let concerned = claim.devices.iter().filter(|device| device.card == card.pci).find(|device| {
                let slices = device.device.parse().ok().and_then(|name: DeviceName| card.slices_of(&name));
                fault.concerns(slices)
            });
            let Some(device) = concerned else { continue };
            let note = sentences(&format!("the card of {} {fault}", device.device), effect, fault, None);
            let content = Content {
                severity: severity(effect),
                action: "Discover",
                reason: UNHEALTHY,
                note: &note,
                occurrence: None,
            };
            for object in users(claim) {
                self.events.send(&content, &object);
            }
        }
    }
}

/// The prepared claims.
pub(super) async fn claims(preparer: &watch::Receiver<Option<Preparer>>) -> Vec<Arc<ClaimRecord>> {
    let preparer = preparer.borrow().clone();
    let Some(preparer) = preparer else { return Vec::new() };
    preparer.prepared_claims().await.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot tell which claims use a card");
        Vec::new()
    })
}

/// The claim and its pods.
pub(super) fn users(claim: &ClaimRecord) -> Vec<ObjectReference> {
    let reference = |api_version: &str, kind: &str, name: &str, uid: &str| ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(claim.namespace.clone()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    };
    let own = reference("resource.k8s.io/v1", "ResourceClaim", &claim.name, &claim.uid);
    let pods = claim.pods.iter().map(|pod| reference("v1", "Pod", &pod.name, &pod.uid));
    std::iter::once(own).chain(pods).collect()
}

/// Identity of a fault for reporting. A change of the driver's recommended recovery is no new fault, except for the fault of the
/// recommendation itself, and for a fault whose recovery changes from or to [`Recovery::None`].
fn identity(fault: &HealthFault) -> HealthFault {
    let recovery = match (fault.class, fault.recovery) {
        (HealthClass::RecoveryAction, recovery) => recovery,
        (_, Recovery::None) => Recovery::None,
        (class, _) => class.recovery(),
    };
    HealthFault { recovery, ..fault.clone() }
}

const fn severity(effect: HealthEffect) -> Severity {
    match effect {
        HealthEffect::Off | HealthEffect::Informational => Severity::Normal,
        HealthEffect::NoSchedule | HealthEffect::NoExecute => Severity::Warning,
    }
}

/// The fault, its effect, and how to repair the card if somebody can.
fn sentences(fault_of: &str, effect: HealthEffect, fault: &HealthFault, way: Option<String>) -> String {
    let mut note = fault_of.to_owned();
    if let Some(consequence) = consequence(effect) {
        let until = if fault.recovery == Recovery::None { "as long as that lasts" } else { "until then" };
        note.push_str(&format!(". It gets no new claims {until}{consequence}"));
    }
    if let Some(way) = way {
        note.push_str(&format!(". {way}"));
    }
    note
}

/// How to recover the card on this node; or a note: the plugin does so.
fn way(fault: &HealthFault, card: &Card, policy: &HealthPolicy) -> Option<String> {
    if policy.recovery() == OwnRecovery::Reset && reset::helps(card, policy) {
        return Some("The plugin resets the card when no claim holds it".to_owned());
    }
    if !matches!(fault.recovery, Recovery::Reset | Recovery::DrainAndReset | Recovery::BusReset) {
        return None;
    }
    let pci = card.pci;
    let unseen = match (fault.class, card.recovery) {
        (HealthClass::Xid, None) => {
            "; this driver recommends no recoveries: instead, take the plugin's pod from the node, and remove xids.json"
        }
        _ => "",
    };
    Some(format!(
        "No card is reset that a program has open, and the plugin has: make the file let-go in its directory on the node, \
         `nvidia-smi --gpu-reset -i {pci}`, and remove the file (docs/health.md, Resetting a card{unseen})"
    ))
}

const fn consequence(effect: HealthEffect) -> Option<&'static str> {
    match effect {
        HealthEffect::Off | HealthEffect::Informational => None,
        HealthEffect::NoSchedule => Some(""),
        HealthEffect::NoExecute => Some(", and pods that use it and don't tolerate that are evicted"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(
        policy: &HealthPolicy,
        fault: HealthFault,
        effect: HealthEffect,
        recommended: Option<Recovery>,
    ) -> String {
        let mut card = Card::new("0000:3b:00.0".parse().unwrap());
        card.recovery = recommended;
        let fault = fault.with_recommendation(recommended);
        card.faults.insert(fault.clone());
        let way = way(&fault, &card, policy);
        sentences(&format!("gpu-3b-00 {fault}"), effect, &fault, way)
    }

    #[test]
    fn an_event_says_what_really_helps() {
        let policy = HealthPolicy::default();
        let xid = |xid, effect, recommended| told(&policy, HealthFault::xid(xid, None), effect, recommended);
        let informational = HealthEffect::Informational;
        assert_eq!(xid(94, informational, Some(Recovery::None)), "gpu-3b-00 had an error (xid-94)");
        assert_eq!(xid(48, informational, Some(Recovery::None)), "gpu-3b-00 had an error (xid-48)");
        assert_eq!(
            xid(79, HealthEffect::NoSchedule, Some(Recovery::Reboot)),
            "gpu-3b-00 had an error (xid-79): reboot the node. It gets no new claims until then"
        );
        let reset = xid(48, HealthEffect::NoSchedule, Some(Recovery::Reset));
        assert!(
            reset.contains(": reset the card. It gets no new claims until then. No card is reset"),
            "{reset}"
        );
        assert!(reset.contains("`nvidia-smi --gpu-reset -i 0000:3b:00.0`") && !reset.contains("xids.json"));
        let silent = xid(48, HealthEffect::NoExecute, None);
        assert!(silent.contains("are evicted. No card") && silent.contains("remove xids.json"), "{silent}");
        let own = xid(94, HealthEffect::NoSchedule, Some(Recovery::None));
        assert!(own.ends_with("It gets no new claims as long as that lasts"), "{own}");
        let resets: HealthPolicy = r#"{"recovery":"Reset"}"#.parse().unwrap();
        let by_plugin = told(&resets, HealthFault::xid(48, None), HealthEffect::NoSchedule, None);
        assert!(by_plugin.ends_with("The plugin resets the card when no claim holds it"), "{by_plugin}");
        let bus = Some(Recovery::BusReset);
        let by_hand = told(&resets, HealthFault::xid(48, None), HealthEffect::NoSchedule, bus);
        assert!(by_hand.contains("make the file let-go"), "{by_hand}");
        assert!(reset.len() < 1024 && silent.len() < 1024, "the longest note of an Event");
    }

    #[test]
    fn another_recommendation_is_told() {
        let recommends = |recovery| {
            identity(&HealthFault::new(HealthClass::RecoveryAction).with_recommendation(Some(recovery)))
        };
        assert_ne!(recommends(Recovery::Reset), recommends(Recovery::Unknown(23)));
        let xid = |recovery| identity(&HealthFault::xid(48, None).with_recommendation(Some(recovery)));
        assert_eq!(xid(Recovery::Reset), xid(Recovery::Reboot));
        assert_ne!(xid(Recovery::None), xid(Recovery::Reset), "now it keeps claims away");
    }
}
