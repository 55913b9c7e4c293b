//! Restarts a daemon or its server after its death.

use std::sync::Arc;
use std::time::Duration;

use super::error::MpsError;
use super::protocol::{DaemonState, EventKind};
use super::server_watch::ServerWatch;
use super::slot::{Slot, Work};
use super::supervisor::Supervisor;

/// First and longest pause before the start of a daemon is retried.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often to check whether the clients of a dead daemon have gone.
const LOOK: Duration = Duration::from_secs(1);

/// Keeps one daemon running until its device is forgotten.
pub(super) async fn keep(supervisor: Arc<Supervisor>, slot: Arc<Slot>) {
    let mut pause = FIRST_PAUSE;
    let mut watch = ServerWatch::new(&slot.directory);
    loop {
        let running = {
            let work = slot.work.lock().await;
            if work.gone || supervisor.is_stopping() {
                return;
            }
            work.running.clone()
        };
        let Some(running) = running else {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = slot.changed.notified() => continue,
            }
            pause = match supervisor.restart(&slot).await {
                Next::Watch => FIRST_PAUSE,
                Next::Look => LOOK,
                Next::Pause => (pause * 2).min(LONGEST_PAUSE),
            };
            continue;
        };
        let server_exited = async {
            match &running.server {
                Some(server) => server.exited().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A dying daemon may take its server along. Then report the daemon's death, the more informative event.
            biased;
            () = running.daemon.exited() => pause = supervisor.daemon_died(&slot, running.daemon.pid).await,
            () = server_exited => {
                let server = running.server.as_ref().map(|server| server.pid).unwrap_or_default();
                supervisor.server_died(&slot, server).await;
            }
            () = slot.changed.notified() => pause = FIRST_PAUSE,
            () = watch.due(running.server.is_some()) => watch.saw(supervisor.look_at_server(&slot, &running).await),
        }
    }
}

/// The keeper's next wait.
enum Next {
    /// The daemon runs: wait for its end.
    Watch,
    /// Wait for clients to leave.
    Look,
    /// The daemon does not start: pause, then try again.
    Pause,
}

impl Supervisor {
    async fn daemon_died(&self, slot: &Slot, pid: u32) -> Duration {
        let mut work = slot.work.lock().await;
        let is_it = work.running.as_ref().is_some_and(|running| running.daemon.pid == pid);
        if work.gone || !is_it || self.is_stopping() {
            return FIRST_PAUSE;
        }
        work.running = None;
        let has_server = !super::processes::all(&slot.directory).is_empty();
        let clients = match &work.record {
            Some(record) if has_server => self.clients_on(record).await.unwrap_or_default(),
            _ => Vec::new(),
        };
        // Before the event, so that a reader woken by the event never reads the dead daemon.
        slot.show(&work, DaemonState::Starting);
        self.tell(slot, EventKind::DaemonDied { pid, clients });
        match self.start_again(slot, &mut work).await {
            Next::Look => LOOK,
            Next::Watch | Next::Pause => FIRST_PAUSE,
        }
    }

    /// Starts a server again. The daemon would start one only for the next client, and until then anybody could use
    /// the card.
    async fn server_died(&self, slot: &Slot, pid: u32) {
        let mut work = slot.work.lock().await;
        let Some(running) = &mut work.running else { return };
        if running.server.as_ref().is_none_or(|server| server.pid != pid)
            || !running.daemon.is_alive()
            || self.is_stopping()
        {
            // The keeper notices by itself if the daemon ends too.
            running.server = None;
            running.fault = None;
            return;
        }
        running.server = None;
        running.fault = None;
        slot.show(&work, DaemonState::Starting);
        self.tell(slot, EventKind::ServerDied { pid });
        self.start_server_again(slot, &mut work).await;
    }

    /// Starts the server of a running daemon without one. Returns whether there is one then.
    pub(super) async fn start_server_again(&self, slot: &Slot, work: &mut Work) -> bool {
        let started = match self.control(slot) {
            Ok(control) => self.start_server(slot, work, &control).await,
            Err(error) => Err(error),
        };
        match started {
            Ok(()) => {
                if let Some(record) = &mut work.record {
                    record.restarts += 1;
                }
                self.write_record(slot, work);
                slot.show(work, DaemonState::Running);
                self.tell(slot, EventKind::Restarted);
                true
            }
            Err(error) => {
                let message = error.to_string();
                let state = DaemonState::Failed { message: message.clone() };
                if slot.seen().state != state {
                    self.tell(slot, EventKind::Failed { message });
                }
                slot.show(work, state);
                false
            }
        }
    }

    async fn restart(&self, slot: &Slot) -> Next {
        let mut work = slot.work.lock().await;
        if work.gone || work.running.is_some() || work.record.as_ref().is_none_or(|record| !record.wanted) {
            return Next::Watch;
        }
        self.start_again(slot, &mut work).await
    }

    async fn start_again(&self, slot: &Slot, work: &mut Work) -> Next {
        match self.start(slot, work).await {
            Ok(()) => {
                if let Some(record) = &mut work.record {
                    record.restarts += 1;
                }
                self.write_record(slot, work);
                slot.show(work, DaemonState::Running);
                self.tell(slot, EventKind::Restarted);
                Next::Watch
            }
            Err(MpsError::InUse(clients)) => {
                // Programs started past MPS while there was no daemon must not come in again.
                if let Err(error) = self.close_cards(slot, work).await {
                    tracing::warn!(%error, "cannot close a card until its daemon runs again");
                }
                slot.show(work, DaemonState::WaitingForClients { clients });
                Next::Look
            }
            Err(error) => {
                let message = error.to_string();
                let state = DaemonState::Failed { message: message.clone() };
                if slot.seen().state != state {
                    self.tell(slot, EventKind::Failed { message });
                }
                slot.show(work, state);
                Next::Pause
            }
        }
    }

    fn write_record(&self, slot: &Slot, work: &Work) {
        if let Some(record) = &work.record
            && let Err(error) = record.write(&slot.directory)
        {
            tracing::warn!(%error, "cannot write the record of a daemon; only its count of restarts is lost");
        }
    }
}
