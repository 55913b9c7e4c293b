//! Reports changes of the machine as Events: another driver version, or another card.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_api::{DeviceName, PciBusId};
use tessera_inventory::Machine;
use tessera_inventory::machine::{Card, Health};
use tessera_kube_util::events::{Content, Events, NodeEvents, Severity};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::health_events::{claims, users};
use crate::prepare::Preparer;

/// Reasons of the Events.
const DRIVER_CHANGED: &str = "DriverChanged";
const CARD_ADDED: &str = "CardAdded";
const CARD_REPLACED: &str = "CardReplaced";

/// Follows the machine and reports changes.
pub struct MachineEvents {
    /// Sends Events of claims and pods.
    pub events: Events,
    /// Sends Events of the node.
    pub of_node: NodeEvents,
    /// The machine.
    pub machines: watch::Receiver<Option<Arc<Machine>>>,
    /// Gives the prepared claims.
    pub preparer: watch::Receiver<Option<Preparer>>,
}

/// The state at the last look.
#[derive(Default)]
struct Seen {
    driver: Option<String>,
    /// UUIDs.
    cards: BTreeMap<PciBusId, String>,
}

impl MachineEvents {
    /// Reports until the machine is followed no longer, or `shutdown`. The state at the first look is no news.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut seen: Option<Seen> = None;
        loop {
            let machine = self.machines.borrow_and_update().clone();
            if let Some(machine) = machine {
                let is_first = seen.is_none();
                self.tell(&machine, seen.get_or_insert_default(), is_first).await;
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = self.machines.changed() => if changed.is_err() { break },
            }
        }
        shutdown.cancelled().await;
    }

    async fn tell(&self, machine: &Machine, seen: &mut Seen, is_first: bool) {
        if let Some(now) = &machine.driver_version
            && let Some(before) = seen.driver.replace(now.clone())
            && before != *now
        {
            tracing::info!(before, now, "the NVIDIA driver is another one");
            let note = format!("the NVIDIA driver has version {now} now, it was {before}");
            self.of_node.send(Severity::Normal, "Discover", DRIVER_CHANGED, &note).await;
        }
        for card in &machine.cards {
            let (Some(uuid), Health::Healthy) = (&card.uuid, &card.health) else { continue };
            let name = DeviceName::Card(card.pci);
            match seen.cards.insert(card.pci, uuid.clone()) {
                None if !is_first => {
                    let model = card.product_name.as_deref().unwrap_or("a card");
                    let note = format!("{name} ({model}, {uuid}) was added");
                    self.of_node.send(Severity::Normal, "Discover", CARD_ADDED, &note).await;
                }
                Some(before) if before != *uuid => {
                    let note = format!(
                        "{name} is {uuid} now, where {before} was: it gets new claims, and those of the old card are not \
                         prepared on it"
                    );
                    self.of_node.send(Severity::Warning, "Discover", CARD_REPLACED, &note).await;
                    self.tell_users(card, uuid).await;
                }
                _ => {}
            }
        }
    }

    /// Notifies the claims prepared on a removed card, and their pods.
    async fn tell_users(&self, card: &Card, uuid: &str) {
        for claim in claims(&self.preparer).await {
            let of_another =
                |device: &&tessera_journal::ClaimDevice| device.card == card.pci && device.card_uuid != uuid;
            let Some(device) = claim.devices.iter().find(of_another) else { continue };
            let note = format!(
                "the card of {} was replaced: it was {}, and {uuid} is in its place. Delete the pod, so that its claim is \
                 allocated anew",
                device.device, device.card_uuid
            );
            let content = Content {
                severity: Severity::Warning,
                action: "Discover",
                reason: CARD_REPLACED,
                note: &note,
                occurrence: None,
            };
            for object in users(&claim) {
                self.events.send(&content, &object);
            }
        }
    }
}
