//! Tells faults of cards as Events of the node, and of the claims and pods that use what is concerned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use tessera_api::health::{HealthEffect, HealthFault, HealthPolicy, Recovery};
use tessera_api::{DeviceName, PciBusId};
use tessera_inventory::Machine;
use tessera_inventory::machine::Card;
use tessera_journal::ClaimRecord;
use tessera_kube_util::events::{Content, Events, NodeEvents, Severity};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::prepare::Preparer;

/// Reasons of the Events.
const UNHEALTHY: &str = "CardUnhealthy";
const HEALTHY: &str = "CardHealthy";

/// Follows the machine and tells what comes and goes.
pub struct HealthEvents {
    /// Sends those of claims and pods.
    pub events: Events,
    /// Sends those of the node.
    pub of_node: NodeEvents,
    /// What faults mean.
    pub policy: HealthPolicy,
    /// The machine.
    pub machines: watch::Receiver<Option<Arc<Machine>>>,
    /// Gives the prepared claims.
    pub preparer: watch::Receiver<Option<Preparer>>,
}

/// The faults of each card that were told, without their recovery: a driver that recommends another one later tells nothing new.
type Told = BTreeMap<PciBusId, BTreeSet<HealthFault>>;

impl HealthEvents {
    /// Tells until the machine is followed no longer, or `shutdown`.
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
                let note = format!("{name} {fault}. {}", consequence(effect));
                self.of_node.send(severity(effect), "Discover", UNHEALTHY, note.trim_end()).await;
                self.tell_users(card, fault, effect, claims.as_deref().unwrap_or_default());
            }
            let gone: Vec<String> = before.difference(&now).map(HealthFault::name).collect();
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
            let note = format!("the card of {} {fault}. {}", device.device, consequence(effect));
            let content = Content {
                severity: severity(effect),
                action: "Discover",
                reason: UNHEALTHY,
                note: note.trim_end(),
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

fn identity(fault: &HealthFault) -> HealthFault {
    HealthFault { recovery: Recovery::None, ..fault.clone() }
}

const fn severity(effect: HealthEffect) -> Severity {
    match effect {
        HealthEffect::Off | HealthEffect::Informational => Severity::Normal,
        HealthEffect::NoSchedule | HealthEffect::NoExecute => Severity::Warning,
    }
}

const fn consequence(effect: HealthEffect) -> &'static str {
    match effect {
        HealthEffect::Off | HealthEffect::Informational => "",
        HealthEffect::NoSchedule => "It gets no new claims until then",
        HealthEffect::NoExecute => {
            "It gets no new claims until then, and pods that use it and don't tolerate that are evicted"
        }
    }
}
