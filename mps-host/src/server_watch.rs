//! Watches a server while its daemon runs. The end of its process is noticed at once. Its state is queried after new
//! lines in its log, and from time to time.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::client_process::list;
use super::control::ServerStatus;
use super::directory::DaemonDirectory;
use super::error::MpsError;
use super::protocol::{ClientProcess, EventKind, Fault};
use super::slot::{Running, Slot, Work};
use super::supervisor::{Supervisor, happening};

/// Interval between two checks of the server's log, at no cost.
const GLANCE: Duration = Duration::from_secs(1);

/// Longest time without a query of the server's state, whatever the log.
const LONGEST: Duration = Duration::from_secs(15);

/// Longest pause before the start of a server is retried.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Time limit of a daemon's answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Last observed state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The server takes clients, or does not report its state.
    Well,
    /// A client faulted, and others are leaving.
    Fault,
    /// There is none, and none can be started.
    Missing,
}

/// Decides when a server is asked next.
#[derive(Debug)]
pub(super) struct ServerWatch {
    log: PathBuf,
    /// Size and time of the log at the last look.
    stamp: Option<(u64, i64, i64)>,
    asked: Instant,
    seen: Seen,
    pause: Duration,
}

impl ServerWatch {
    pub fn new(directory: &DaemonDirectory) -> Self {
        let log = directory.log.join("server.log");
        Self { log, stamp: None, asked: Instant::now(), seen: Seen::Well, pause: GLANCE }
    }

    /// Waits until there is reason to ask; `has_server` is whether there is a server to ask.
    pub async fn due(&mut self, has_server: bool) {
        loop {
            tokio::time::sleep(self.pause).await;
            let metadata = fs::symlink_metadata(&self.log).ok();
            let stamp = metadata.map(|metadata| (metadata.len(), metadata.mtime(), metadata.mtime_nsec()));
            if !has_server
                || stamp != self.stamp
                || self.seen != Seen::Well
                || self.asked.elapsed() >= LONGEST
            {
                self.stamp = stamp;
                self.asked = Instant::now();
                return;
            }
        }
    }

    /// Notes an observation.
    pub fn saw(&mut self, seen: Seen) {
        self.seen = seen;
        self.pause = match seen {
            Seen::Well | Seen::Fault => GLANCE,
            Seen::Missing => (self.pause * 2).min(LONGEST_PAUSE),
        };
    }
}

impl Supervisor {
    /// Asks for the state of the server of `running`, and reports a change. Takes no lock while the daemon answers.
    pub async fn look_at_server(&self, slot: &Slot, running: &Running) -> Seen {
        let Ok(control) = self.control(slot) else { return Seen::Well };
        let control = control.within(PATIENCE);
        let Some(server) = &running.server else {
            // A daemon unable even to list its servers would take long to refuse to start one.
            return match control.servers().await {
                Ok(_) => self.find_server(slot, running).await,
                Err(_) => Seen::Missing,
            };
        };
        let fault = match control.server_status(server.pid).await {
            Ok(ServerStatus::Fault) => Some(control.clients().await.unwrap_or_default()),
            Ok(ServerStatus::Active | ServerStatus::Initializing) => None,
            Err(error) => {
                tracing::debug!(%error, server = server.pid, "an MPS server can't be asked how it is");
                return Seen::Well;
            }
        };
        let mut work = slot.work.lock().await;
        self.note_fault(slot, &mut work, running, fault)
    }

    /// Notes the state of a server, unless replaced meanwhile.
    fn note_fault(&self, slot: &Slot, work: &mut Work, of: &Running, fault: Option<Vec<u32>>) -> Seen {
        let Some(running) = work.running.as_mut().filter(|running| running.is_same(of)) else {
            return Seen::Well;
        };
        let fault = fault.map(|clients| {
            let known = running.fault.as_ref().map(|known| known.id.clone());
            Fault { id: known.unwrap_or_else(happening), clients }
        });
        let before = std::mem::replace(&mut running.fault, fault.clone());
        if before != fault {
            slot.show(work, slot.seen().state);
        }
        match (before, &fault) {
            (None, Some(Fault { id, clients })) => {
                let clients = clients.iter().map(|pid| ClientProcess::of(*pid)).collect();
                self.tell_as(slot, EventKind::ServerFault { clients }, id.clone());
            }
            (Some(_), None) => self.tell(slot, EventKind::ServerRecovered),
            (Some(before), Some(now)) if before != *now => {
                let left = list(&now.clients);
                tracing::info!(device = %slot.seen().device, left, "clients leave after a fault");
            }
            _ => {}
        }
        if fault.is_some() { Seen::Fault } else { Seen::Well }
    }

    /// Finds or starts the server. A daemon starts one only for the next client, and until then anybody could use the
    /// card.
    async fn find_server(&self, slot: &Slot, of: &Running) -> Seen {
        let mut work = slot.work.lock().await;
        let is_same =
            work.running.as_ref().is_some_and(|running| running.is_same(of) && running.daemon.is_alive());
        if work.gone || !is_same || self.is_stopping() {
            return Seen::Well;
        }
        if self.start_server_again(slot, &mut work).await { Seen::Well } else { Seen::Missing }
    }

    /// Checks that the server takes clients, as far as known. After an earlier fault the state is queried again.
    ///
    /// # Errors
    /// [`MpsError::Fault`] while it takes none.
    pub async fn no_fault(&self, slot: &Slot, work: &mut Work) -> Result<(), MpsError> {
        let Some(running) = work.running.clone() else { return Ok(()) };
        let (Some(known), Some(server)) = (&running.fault, &running.server) else { return Ok(()) };
        let control = self.control(slot)?.within(PATIENCE);
        let fault = match control.server_status(server.pid).await {
            Ok(ServerStatus::Fault) => Some(control.clients().await.unwrap_or_default()),
            Ok(ServerStatus::Active | ServerStatus::Initializing) => None,
            Err(_) => Some(known.clients.clone()),
        };
        self.note_fault(slot, work, &running, fault.clone());
        fault.map_or(Ok(()), |clients| Err(MpsError::Fault(clients)))
    }
}
