//! All daemons of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tessera_api::PciBusId;
use tokio::sync::broadcast;

use super::compute_mode::DriverCard;
use super::control::{Control, PATIENCE};
use super::device::DeviceUuid;
use super::driver::MpsProgram;
use super::error::MpsError;
use super::partitions;
use super::protocol::{Daemon, DaemonState, Ensure, Event, EventKind, Settings};
use super::record::Record;
use super::slot::{Slot, Work};
use tessera_nvml::{DriverCalls, DriverRoot};

/// Number of events kept for a slow subscriber.
const EVENTS_KEPT: usize = 256;

/// Time limit of a driver call. Initialising a card takes seconds.
const DRIVER_PATIENCE: Duration = Duration::from_secs(20);

/// The largest memory limit, MiB: more than any card has, and short enough for a command.
const LARGEST_LIMIT: u64 = 16 << 20;

/// All daemons of the node.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub directory: PathBuf,
    pub driver_root: DriverRoot,
    /// Size of each daemon's own `/dev/shm`, in bytes, if daemons have one.
    pub shm_size: Option<u64>,
    pub events: broadcast::Sender<Event>,
    /// The process is stopping: daemons ending now are not started again.
    pub stopping: AtomicBool,
    calls: Arc<DriverCalls>,
    slots: Mutex<BTreeMap<DeviceUuid, Arc<Slot>>>,
}

impl Supervisor {
    pub fn new(directory: PathBuf, driver_root: DriverRoot, shm_size: Option<u64>) -> Self {
        Self {
            directory,
            driver_root,
            shm_size,
            events: broadcast::Sender::new(EVENTS_KEPT),
            stopping: AtomicBool::new(false),
            calls: Arc::new(DriverCalls::new(DRIVER_PATIENCE)),
            slots: Mutex::default(),
        }
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<DeviceUuid, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device's slot, if there is one.
    pub fn find(&self, device: &DeviceUuid) -> Option<Arc<Slot>> {
        self.slots().get(device).cloned()
    }

    /// All slots.
    pub fn all(&self) -> Vec<Arc<Slot>> {
        self.slots().values().cloned().collect()
    }

    /// The device's slot; makes one with a keeper if there is none.
    pub fn slot(self: &Arc<Self>, device: &DeviceUuid, card: PciBusId) -> Arc<Slot> {
        let mut slots = self.slots();
        if let Some(slot) = slots.get(device) {
            return slot.clone();
        }
        let slot = Arc::new(Slot::new(&self.directory, device, card, self.shm_size.is_some()));
        slots.insert(device.clone(), slot.clone());
        tokio::spawn(super::keeper::keep(self.clone(), slot.clone()));
        slot
    }

    /// Forgets a device without remains.
    pub fn forget(&self, device: &DeviceUuid) {
        self.slots().remove(device);
    }

    pub fn list(&self) -> Vec<Daemon> {
        self.slots().values().map(|slot| slot.seen()).collect()
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Sends an event to all subscribers.
    pub fn tell(&self, slot: &Slot, kind: EventKind) {
        self.tell_as(slot, kind, happening());
    }

    /// The same, with a given event id.
    pub fn tell_as(&self, slot: &Slot, kind: EventKind, id: String) {
        let Daemon { device, card, .. } = slot.seen();
        match &kind {
            EventKind::Started | EventKind::Restarted | EventKind::ServerRecovered | EventKind::Stopped => {
                tracing::info!(%device, ?kind, "MPS daemon");
            }
            _ => tracing::warn!(%device, ?kind, "MPS daemon"),
        }
        // Fails without subscribers, which is fine.
        let _ = self.events.send(Event { device, card, kind, id: Some(id) });
    }

    pub fn control(&self, slot: &Slot) -> Result<Control, MpsError> {
        let Daemon { device, others, .. } = slot.seen();
        Ok(Control {
            program: MpsProgram::find(&self.driver_root)?,
            directory: slot.directory.clone(),
            devices: std::iter::once(device).chain(others.into_iter().map(|other| other.device)).collect(),
            own_shm: self.shm_size.is_some(),
            patience: PATIENCE,
        })
    }

    pub fn driver_card(&self, card: PciBusId) -> DriverCard {
        DriverCard { driver_root: self.driver_root.clone(), card, calls: self.calls.clone() }
    }

    /// Clients of MPS servers on a daemon's cards.
    pub async fn clients_on(&self, record: &Record) -> Result<Vec<u32>, MpsError> {
        let mut clients = Vec::new();
        for card in record.cards() {
            clients.extend(self.driver_card(card).clients().await?);
        }
        clients.sort_unstable();
        clients.dedup();
        Ok(clients)
    }

    /// Starts a daemon or changes its settings to these.
    pub async fn ensure(self: &Arc<Self>, wanted: Ensure) -> Result<Daemon, MpsError> {
        check(&wanted)?;
        loop {
            let slot = self.slot(&wanted.device, wanted.card);
            let mut work = slot.work.lock().await;
            if work.gone {
                continue;
            }
            if work.record.as_ref().is_some_and(|record| !record.is_of(&wanted)) {
                let clients = self.clients(&slot, &work).await;
                if !clients.is_empty() {
                    return Err(MpsError::InUse(clients));
                }
                tracing::warn!(device = %wanted.device, "ending a daemon of someone else, who has not released it");
                self.end(&slot, &mut work, 0).await?;
                continue;
            }
            return self.ensure_slot(&slot, &mut work, &wanted).await;
        }
    }

    async fn ensure_slot(&self, slot: &Slot, work: &mut Work, wanted: &Ensure) -> Result<Daemon, MpsError> {
        let is_new = work.record.is_none();
        let mut record = work.record.clone().unwrap_or_else(|| Record::new(wanted));
        if record.is_static() != wanted.static_shares.is_some() {
            return Err(MpsError::OtherKind { is_static: record.is_static() });
        }
        let shares = record.static_partitions.as_deref().zip(wanted.static_shares.as_ref());
        let static_partitions = shares.map(|(known, shares)| partitions::wanted(known, shares));
        record.static_partitions = static_partitions;
        let are_other = record.set_limits(wanted);
        record.wanted = true;
        if let Err(error) = record.write(&slot.directory) {
            if is_new {
                // Leave nothing of the attempt, and no keeper.
                self.clear(slot, work).await;
            }
            return Err(error);
        }
        work.record = Some(record);
        let is_running = work.running.as_ref().is_some_and(|running| running.daemon.is_alive());
        let result = if is_running {
            self.renew(slot, work, are_other).await
        } else {
            work.running = None;
            slot.show(work, DaemonState::Starting);
            self.start(slot, work).await
        };
        match result {
            Ok(()) => {
                slot.show(work, DaemonState::Running);
                slot.changed.notify_one();
                if !is_running {
                    self.tell(slot, if is_new { EventKind::Started } else { EventKind::Restarted });
                }
                Ok(slot.seen())
            }
            Err(error) if is_new => {
                // No claim depends on the daemon yet, so leave nothing of the attempt.
                self.clear(slot, work).await;
                Err(error)
            }
            Err(error) => {
                let state = match &error {
                    // A share that can't be made does not affect the others.
                    MpsError::LessThanAChunk { .. } | MpsError::NoPartition { .. } | MpsError::Fault(_)
                        if is_running =>
                    {
                        DaemonState::Running
                    }
                    error => DaemonState::Failed { message: error.to_string() },
                };
                slot.show(work, state);
                Err(error)
            }
        }
    }

    /// Brings a running daemon up to date.
    async fn renew(&self, slot: &Slot, work: &mut Work, are_other: bool) -> Result<(), MpsError> {
        let has_server =
            work.running.as_ref().and_then(|running| running.server.as_ref()).is_some_and(|s| s.is_alive());
        let is_static = work.record.as_ref().is_some_and(Record::is_static);
        if has_server && !are_other && !is_static {
            return self.no_fault(slot, work).await;
        }
        let control = self.control(slot)?;
        if !has_server {
            self.start_server(slot, work, &control).await?;
        }
        if let (true, Some(record)) = (are_other, &work.record) {
            let servers = control.servers().await?;
            control.limit(record, &servers).await?;
        }
        self.partition(slot, work, &control).await?;
        self.no_fault(slot, work).await
    }
}

/// Id for an event of this moment. A daemon never has two events within one tick of the clock.
pub(super) fn happening() -> String {
    format!("{:x}", SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos())
}

fn check(wanted: &Ensure) -> Result<(), MpsError> {
    if let Some(shares) = &wanted.static_shares {
        if let Some(wrong) = shares.values().find(|compute| !(1..=100).contains(*compute)) {
            return Err(MpsError::StaticShare(*wrong));
        }
        let together = shares.values().map(|compute| u32::from(*compute)).sum();
        if together > 100 {
            return Err(MpsError::StaticShares(together));
        }
    }
    let Settings { memory_limit_mib, active_thread_percentage } = wanted.settings;
    let limits = wanted.others.iter().filter_map(|other| other.memory_limit_mib).chain(memory_limit_mib);
    for limit in limits {
        if limit == 0 || limit > LARGEST_LIMIT {
            return Err(MpsError::MemoryLimit(limit));
        }
    }
    if let Some(percentage) = active_thread_percentage
        && !(1..=100).contains(&percentage)
    {
        return Err(MpsError::Percentage(percentage));
    }
    let mut devices = BTreeSet::from([&wanted.device]);
    if wanted.others.iter().any(|other| !devices.insert(&other.device))
        || (devices.len() > 1 && devices.iter().any(|device| device.is_partition()))
    {
        return Err(MpsError::Devices);
    }
    Ok(())
}
