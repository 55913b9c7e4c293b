//! Turns the reports of NVML and sysfs into facts for [`tessera_inventory`], and keeps them up to date.
//!
//! ```text
//! Nvml ──┐
//! sysfs ─┼─> facts ──> Discovery (what was known before, health) ──> Machine, sent when it changed
//! events ┤
//! journal┘ (which GPU instances are this driver's own: those are left out)
//! ```
//!
//! A failing query costs one attribute of one card, and an unreadable fact keeps its last known value:
//! the published attributes of a card must not flicker while claims hold the card. A card that disappears stays in the
//! machine, as lost. A card without a known identity is left out.

mod facts;
mod faults;
mod health;
mod links_up;
mod looks;
mod mig;
mod own_partitions;
mod problem;
mod readers;
mod resets;
mod snapshot;
mod sysfs;
mod without_mig;
mod xid_memory;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tessera_api::health::{HealthClass, HealthFault, HealthPolicy};
use tessera_inventory::Machine;
use tessera_nvml::{Event, EventWatch, Nvml};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::card_history::CardHistory;
use crate::driver::{self, Driver, LetGo};
use crate::prepare::DriverFilesState;
use health::HealthBook;

pub use looks::Looks;
pub use own_partitions::{OwnPartition, OwnPartitions, OwnPartitionsReceiver};
pub use problem::Problem;
pub use resets::ResetCards;
pub use snapshot::Discovery;
pub use xid_memory::XidMemory;

/// Options of discovery.
#[derive(Clone, Debug)]
pub struct DiscoveryOptions {
    /// Where sysfs is mounted (`--sysfs-root`).
    pub sysfs_root: PathBuf,
    /// File for facts reported only outside MIG mode, for the next process; `None` keeps them in memory
    /// only.
    pub memory: Option<PathBuf>,
    /// Interval between two looks without a cause.
    pub interval: Duration,
    /// Time until the next look when something is missing: a query failed, or a card is still registering with its
    /// NVLink fabric. Doubles with every look without news, up to `interval`.
    pub unsettled_interval: Duration,
    /// Notified by code that has changed the hardware, for a new look.
    pub look_again: Arc<Notify>,
    /// Keeps XIDs beyond the end of this process; `None` for a process without restarts.
    pub xid_memory: Option<XidMemory>,
    /// The XIDs that count.
    pub policy: HealthPolicy,
    /// How long the driver library may be away, to be opened anew, before all cards count as lost.
    pub away: Duration,
    /// Whether the driver library is closed by request, which does not count as away.
    pub let_go: LetGo,
    /// The cards reset by this process.
    pub reset_cards: ResetCards,
    /// Keeps the cards seen at each address, and since when; `None` for a process without claims to prepare.
    pub history: Option<Arc<CardHistory>>,
    /// How long a driver call, for one card or for all, may take before its subject counts as not answering.
    pub deadline: Duration,
    /// Whether the node has the files of its driver: without them no card can be used.
    pub driver_files: watch::Receiver<DriverFilesState>,
    /// Where to publish when the hardware was looked at.
    pub looks: watch::Sender<Looks>,
}

impl DiscoveryOptions {
    /// Looks every 30 s, and 5 s after something was missing; a driver call may take 10 s.
    #[must_use]
    pub fn new(sysfs_root: PathBuf) -> Self {
        DiscoveryOptions {
            sysfs_root,
            memory: None,
            interval: Duration::from_secs(30),
            unsettled_interval: Duration::from_secs(5),
            look_again: Arc::default(),
            xid_memory: None,
            policy: HealthPolicy::default(),
            away: driver::AWAY,
            let_go: watch::channel(false).1,
            reset_cards: ResetCards::default(),
            history: None,
            deadline: Duration::from_secs(10),
            driver_files: watch::channel(DriverFilesState::default()).1,
            looks: watch::Sender::default(),
        }
    }
}

/// State shared by the event thread and the reader.
struct Shared {
    health: Mutex<HealthBook>,
    look_again: Arc<Notify>,
    xid_memory: Option<XidMemory>,
    reset_cards: ResetCards,
}

/// Keeps `machines` up to date with the hardware until cancelled. Reads at once, then whenever the driver reports an
/// event, `hardware` or `own` changes, or an interval is over; sends only changes. Sends `None` until cards have been
/// seen, and, on a machine with GPU instances, until `own` lists this driver's.
///
/// Every driver call runs on a thread of its own. A hanging call delays a reading once, by
/// [`deadline`](DiscoveryOptions::deadline): its card counts as not answering until the call returns, and the rest is
/// read as usual.
pub async fn run(
    mut hardware: Driver,
    mut own: OwnPartitionsReceiver,
    options: DiscoveryOptions,
    machines: watch::Sender<Option<Arc<Machine>>>,
    cancelled: CancellationToken,
) {
    let discovery = Discovery::new(options.sysfs_root.clone())
        .answered_within(options.deadline, options.look_again.clone());
    let discovery = Arc::new(Mutex::new(match options.memory.clone() {
        Some(file) => discovery.remembering_in(file),
        None => discovery,
    }));
    let memory = options.xid_memory.clone();
    let earlier = tokio::task::spawn_blocking(move || memory.map(|memory| memory.read()).unwrap_or_default());
    let earlier = tokio::select! {
        () = cancelled.cancelled() => return,
        earlier = earlier => earlier.unwrap_or_default(),
    };
    discovery.lock().unwrap_or_else(PoisonError::into_inner).seen_earlier(earlier.cards.clone());
    let history = options.history.clone();
    let shared = Arc::new(Shared {
        health: Mutex::new(HealthBook::of_earlier(earlier, options.policy.clone())),
        look_again: options.look_again.clone(),
        xid_memory: options.xid_memory.clone(),
        reset_cards: options.reset_cards.clone(),
    });
    let mut let_go = options.let_go.clone();
    let mut events: Option<EventWatch> = None;
    let mut listening_to: Option<Arc<dyn Nvml>> = None;
    let mut pause = options.unsettled_interval;
    let mut own_may_change = true;
    let mut driver_files = options.driver_files.clone();
    let mut files_may_change = true;
    loop {
        let nvml = hardware.borrow_and_update().clone();
        if !same(nvml.as_ref(), listening_to.as_ref()) {
            events = None;
            let was_open = listening_to.take().is_some();
            listening_to.clone_from(&nvml);
            if was_open && nvml.is_none() {
                // Hold nothing of the library here: the library must be free to be opened anew.
                let away = async {
                    driver::is_not_let_go(&mut let_go).await;
                    tokio::time::sleep(options.away).await;
                };
                tokio::select! {
                    () = cancelled.cancelled() => return,
                    changed = hardware.changed() => if changed.is_err() { return } else { continue },
                    () = away => {}
                }
            }
        }
        let work = tokio::task::spawn_blocking({
            let (discovery, shared) = (Arc::clone(&discovery), Arc::clone(&shared));
            let (nvml, listen) = (nvml.clone(), events.is_none());
            let own = own.borrow_and_update().clone();
            let has_files = driver_files.borrow_and_update().missing.is_none();
            move || {
                let look = look(nvml.as_ref(), own.as_ref(), listen, &discovery, &shared);
                if has_files { look } else { look.without_driver_files() }
            }
        });
        let look = tokio::select! {
            () = cancelled.cancelled() => return,
            look = work => look,
        };
        pause = match look {
            Ok(Look { machine, watch, looks, settled }) => {
                events = events.or(watch);
                // Before the machine: consumers of a machine depend on the looks.
                options.looks.send_replace(looks);
                // Before the machine is sent: nothing may be allocated on a card not yet checked for replacement.
                if let (Some(history), Some(machine)) = (&history, &machine) {
                    history.learn(machine);
                }
                let news = send(&machines, machine);
                if settled {
                    options.interval
                } else if news {
                    options.unsettled_interval
                } else {
                    (pause * 2).min(options.interval)
                }
            }
            Err(error) => {
                tracing::error!(%error, "reading the cards broke off; this is a defect, please report it");
                options.interval
            }
        };
        tokio::select! {
            () = cancelled.cancelled() => return,
            changed = hardware.changed() => if changed.is_err() { return },
            changed = own.changed(), if own_may_change => own_may_change = changed.is_ok(),
            changed = driver_files.changed(), if files_may_change => files_may_change = changed.is_ok(),
            () = shared.look_again.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Result of one look.
struct Look {
    machine: Option<Machine>,
    watch: Option<EventWatch>,
    looks: Looks,
    settled: bool,
}

impl Look {
    /// The same where the files of the driver are not on the node.
    fn without_driver_files(mut self) -> Self {
        for card in self.machine.iter_mut().flat_map(|machine| &mut machine.cards) {
            card.faults.insert(HealthFault::new(HealthClass::DriverFiles));
        }
        self
    }
}

fn look(
    nvml: Option<&Arc<dyn Nvml>>,
    own: Option<&Arc<dyn OwnPartitions>>,
    listen: bool,
    discovery: &Mutex<Discovery>,
    shared: &Arc<Shared>,
) -> Look {
    let mut discovery = discovery.lock().unwrap_or_else(PoisonError::into_inner);
    // Listen before reading, to miss no event in between.
    let watch = nvml.filter(|_| listen).and_then(|nvml| discovery.listen(nvml, sink(shared)));
    shared.save();
    discovery.were_reset(shared.reset_cards.take());
    let health = locked(&shared.health).clone();
    match nvml {
        Some(nvml) => discovery.read(nvml, &health, own),
        None => discovery.driver_gone(),
    }
    for card in discovery.returned() {
        locked(&shared.health).forget(*card);
        shared.look_again.notify_one();
    }
    for (card, instances) in discovery.instances_of_xids() {
        locked(&shared.health).place(*card, instances);
    }
    let with_xids: Vec<_> = locked(&shared.health).cards().collect();
    for card in with_xids {
        if let Some(seen) = discovery.last_seen(card) {
            locked(&shared.health).saw(card, seen);
        }
    }
    shared.save();
    let looks = discovery.looks().clone();
    Look { machine: discovery.machine(), watch, looks, settled: discovery.is_settled() }
}

impl Shared {
    /// Writes new XIDs to the disk. A failure is tried again with the next look.
    fn save(&self) {
        let Some(memory) = &self.xid_memory else { return };
        let Some(xids) = locked(&self.health).unsaved() else { return };
        if let Err(error) = memory.write(xids) {
            tracing::warn!(%error, "an XID can't be remembered for the plugin's next start; trying again");
            locked(&self.health).keep_unsaved();
        }
    }
}

fn locked(health: &Mutex<HealthBook>) -> MutexGuard<'_, HealthBook> {
    health.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sink(shared: &Arc<Shared>) -> Box<dyn FnMut(Event) + Send> {
    let shared = Arc::clone(shared);
    Box::new(move |event: Event| {
        if locked(&shared.health).note(&event) {
            shared.look_again.notify_one();
        }
    })
}

/// Returns whether the machine changed.
fn send(machines: &watch::Sender<Option<Arc<Machine>>>, machine: Option<Machine>) -> bool {
    machines.send_if_modified(|sent| {
        let changed = sent.as_deref() != machine.as_ref();
        if changed {
            *sent = machine.map(Arc::new);
        }
        changed
    })
}

fn same(one: Option<&Arc<dyn Nvml>>, other: Option<&Arc<dyn Nvml>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}
