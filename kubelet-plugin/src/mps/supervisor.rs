use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Map;
use tessera_api::PciBusId;
use tokio::sync::broadcast;

use super::DeviceUuid;
use super::compute_mode::DriverCard;
use super::control::Control;
use super::driver::MpsProgram;
use super::error::MpsError;
use super::protocol::{Daemon, DaemonState, Ensure, Event, EventKind, Settings};
use super::record::Record;
use super::slot::{Slot, Work};

/// Events that are kept for a subscriber who is slow.
const EVENTS_KEPT: usize = 256;

/// The largest memory limit, MiB: more than any card has, and what fits into an order.
const LARGEST_LIMIT: u64 = 16 << 20;

/// All daemons of the node.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub directory: PathBuf,
    pub driver_root: PathBuf,
    pub own_shm: bool,
    pub events: broadcast::Sender<Event>,
    /// Daemons that end now are not started again.
    pub stopping: AtomicBool,
    slots: Mutex<BTreeMap<DeviceUuid, Arc<Slot>>>,
}

impl Supervisor {
    pub fn new(directory: PathBuf, driver_root: PathBuf, own_shm: bool) -> Self {
        Self {
            directory,
            driver_root,
            own_shm,
            events: broadcast::Sender::new(EVENTS_KEPT),
            stopping: AtomicBool::new(false),
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

    /// All slots there are.
    pub fn all(&self) -> Vec<Arc<Slot>> {
        self.slots().values().cloned().collect()
    }

    /// The device's slot, with a keeper.
    pub fn slot(self: &Arc<Self>, device: &DeviceUuid, card: PciBusId) -> Arc<Slot> {
        let mut slots = self.slots();
        if let Some(slot) = slots.get(device) {
            return slot.clone();
        }
        let slot = Arc::new(Slot::new(&self.directory, device, card, self.own_shm));
        slots.insert(device.clone(), slot.clone());
        tokio::spawn(super::keeper::keep(self.clone(), slot.clone()));
        slot
    }

    /// Forgets a device of which nothing is left.
    pub fn forget(&self, device: &DeviceUuid) {
        self.slots().remove(device);
    }

    pub fn list(&self) -> Vec<Daemon> {
        self.slots().values().map(|slot| slot.seen()).collect()
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Tells everyone who listens.
    pub fn tell(&self, slot: &Slot, kind: EventKind) {
        let Daemon { device, card, .. } = slot.seen();
        match &kind {
            EventKind::Started | EventKind::Restarted | EventKind::Stopped => {
                tracing::info!(%device, ?kind, "MPS daemon");
            }
            _ => tracing::warn!(%device, ?kind, "MPS daemon"),
        }
        // Nobody need listen.
        let _ = self.events.send(Event { device, card, kind });
    }

    pub fn control(&self, slot: &Slot) -> Result<Control, MpsError> {
        Ok(Control {
            program: MpsProgram::find(&self.driver_root)?,
            directory: slot.directory.clone(),
            device: slot.seen().device,
            own_shm: self.own_shm,
        })
    }

    pub fn driver_card(&self, card: PciBusId) -> DriverCard {
        DriverCard { driver_root: self.driver_root.clone(), card }
    }

    /// Lets a daemon run with these settings.
    pub async fn ensure(self: &Arc<Self>, wanted: Ensure) -> Result<Daemon, MpsError> {
        check(wanted.settings)?;
        loop {
            let slot = self.slot(&wanted.device, wanted.card);
            let mut work = slot.work.lock().await;
            if work.gone {
                continue;
            }
            return self.ensure_slot(&slot, &mut work, &wanted).await;
        }
    }

    async fn ensure_slot(&self, slot: &Slot, work: &mut Work, wanted: &Ensure) -> Result<Daemon, MpsError> {
        let is_new = work.record.is_none();
        let mut record = work.record.clone().unwrap_or_else(|| Record {
            version: Record::VERSION,
            device: wanted.device.clone(),
            card: wanted.card,
            settings: wanted.settings,
            wanted: true,
            compute_mode_before: None,
            restarts: 0,
            other: Map::new(),
        });
        let are_other = record.settings != wanted.settings;
        record.settings = wanted.settings;
        record.wanted = true;
        record.write(&slot.directory)?;
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
                // Nobody depends on it yet, so nothing of the attempt shall stay.
                self.clear(slot, work).await;
                Err(error)
            }
            Err(error) => {
                slot.show(work, DaemonState::Failed { message: error.to_string() });
                Err(error)
            }
        }
    }

    /// Brings a running daemon up to date.
    async fn renew(&self, slot: &Slot, work: &mut Work, are_other: bool) -> Result<(), MpsError> {
        let has_server =
            work.running.as_ref().and_then(|running| running.server.as_ref()).is_some_and(|s| s.is_alive());
        if has_server && !are_other {
            return Ok(());
        }
        let control = self.control(slot)?;
        if !has_server {
            self.start_server(slot, work, &control).await?;
        }
        if let (true, Some(record)) = (are_other, &work.record) {
            let servers = control.servers().await?;
            control.limit(record.settings, &servers).await?;
        }
        Ok(())
    }
}

fn check(settings: Settings) -> Result<(), MpsError> {
    match settings {
        Settings { memory_limit_mib: Some(limit), .. } if limit == 0 || limit > LARGEST_LIMIT => {
            Err(MpsError::MemoryLimit(limit))
        }
        Settings { active_thread_percentage: Some(percentage), .. }
            if percentage == 0 || percentage > 100 =>
        {
            Err(MpsError::Percentage(percentage))
        }
        _ => Ok(()),
    }
}
