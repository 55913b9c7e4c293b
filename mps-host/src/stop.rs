//! Ends a daemon and removes all its traces.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::client_process::list;
use super::compute_mode::mode_after;
use super::error::MpsError;
use super::processes;
use super::protocol::{ClientProcess, DaemonState, EventKind, Release};
use super::record::Record;
use super::remove::remove_tree;
use super::shared_memory;
use super::slot::{Slot, Work};
use super::supervisor::Supervisor;

/// How long a daemon about to end may take to report its clients. A hanging one is ended anyway.
const QUESTION: Duration = Duration::from_secs(1);

/// How long a daemon may take to end after confirming the order.
const LAST_WORDS: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Ends the daemon of a device. Returns the clients whose contexts were lost.
    pub async fn release(&self, order: &Release) -> Result<Vec<u32>, MpsError> {
        let Some(slot) = self.find(&order.device) else { return Ok(Vec::new()) };
        let mut work = slot.work.lock().await;
        let is_meant = work.record.as_ref().is_none_or(|record| record.owner == order.owner);
        if work.gone || !is_meant {
            return Ok(Vec::new());
        }
        self.end(&slot, &mut work, order.grace_seconds).await
    }

    /// Ends a daemon. The caller holds the work on the device.
    pub async fn end(&self, slot: &Slot, work: &mut Work, grace_seconds: u32) -> Result<Vec<u32>, MpsError> {
        if let Some(record) = &mut work.record {
            record.wanted = false;
            if let Err(error) = record.write(&slot.directory) {
                // Go on with a full disk: only a crash right now would bring the daemon back.
                tracing::warn!(%error, "cannot write down that a daemon is to end; ending it all the same");
            }
        }
        slot.show(work, DaemonState::Stopping);
        let grace = Duration::from_secs(grace_seconds.into());
        let clients = self.clients(slot, work).await;
        let who: Vec<ClientProcess> = clients.iter().map(|pid| ClientProcess::of(*pid)).collect();
        if !clients.is_empty() {
            tracing::warn!(device = %slot.seen().device, clients = list(&clients), grace_seconds,
                "a daemon is to end, and processes still use its device");
            self.tell(slot, EventKind::ClientsRemain { clients: clients.clone(), grace_seconds });
        }
        let since = Instant::now();
        if let Some(running) = work.running.clone().filter(|running| running.daemon.is_alive()) {
            let quit = match self.control(slot) {
                Ok(control) => control.quit(grace).await,
                Err(error) => Err(error),
            };
            match quit {
                Ok(()) => {
                    let _ = tokio::time::timeout(LAST_WORDS, running.daemon.exited()).await;
                }
                Err(error) => {
                    tracing::warn!(%error, pid = running.daemon.pid, "an MPS daemon does not quit; killing it");
                }
            }
        }
        // Servers of a dead daemon don't end by themselves; they go on for their clients.
        let left = processes::all(&slot.directory);
        for (_, process) in &left {
            let remaining = grace.saturating_sub(since.elapsed());
            if tokio::time::timeout(remaining, process.exited()).await.is_err() {
                process.kill().await;
            }
        }
        let were_ended = since.elapsed() >= grace && !clients.is_empty();
        if were_ended {
            self.tell(slot, EventKind::ClientsEnded { clients: who });
        }
        self.clear(slot, work).await;
        self.tell(slot, EventKind::Stopped);
        Ok(if were_ended { clients } else { Vec::new() })
    }

    /// Clients of a daemon, or of a dead daemon's remaining server.
    pub async fn clients(&self, slot: &Slot, work: &Work) -> Vec<u32> {
        if work.running.as_ref().is_some_and(|running| running.daemon.is_alive())
            && let Ok(control) = self.control(slot)
        {
            match control.within(QUESTION).clients().await {
                Ok(clients) => return clients,
                Err(error) => tracing::warn!(%error, "asking the driver for the clients of the card instead"),
            }
        }
        match &work.record {
            Some(record) if !processes::all(&slot.directory).is_empty() => {
                self.clients_on(record).await.unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// Removes the remains of an ended daemon, the record last. A failure is logged, and the removal retried at the
    /// next start.
    pub async fn clear(&self, slot: &Slot, work: &mut Work) {
        work.running = None;
        match self.try_clear(slot, work).await {
            Ok(()) => {}
            Err(error) => tracing::warn!(%error, "traces of an MPS daemon stay until mps-host starts again"),
        }
        work.record = None;
        work.gone = true;
        self.forget(&slot.seen().device);
        slot.changed.notify_one();
    }

    async fn try_clear(&self, slot: &Slot, work: &Work) -> Result<(), MpsError> {
        let was_closed = work.record.as_ref().is_some_and(|record| record.closed);
        for (card, before) in work.record.clone().as_mut().map(Record::modes).unwrap_or_default() {
            if before.is_none() {
                continue;
            }
            let card = self.driver_card(card);
            if let Some(mode) = mode_after(*before, was_closed, card.compute_mode().await?) {
                card.set_compute_mode(mode).await?;
            }
        }
        shared_memory::remove(&slot.directory.shm)?;
        for part in [&slot.directory.pipe, &slot.directory.log, &slot.directory.root] {
            remove_tree(part).await?;
        }
        Ok(())
    }

    /// Ends daemons without clients when the process ends; the next process starts them again. The others stay as
    /// long as possible.
    pub async fn leave(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        for slot in self.all() {
            let mut work = slot.work.lock().await;
            if let Err(error) = self.close_cards(&slot, &mut work).await {
                tracing::warn!(%error, "until the next mps-host runs, programs may use a shared card without limits");
            }
            let Some(running) = work.running.clone() else { continue };
            let Ok(control) = self.control(&slot) else { continue };
            match control.clients().await {
                Ok(clients) if clients.is_empty() => {
                    if control.quit(Duration::ZERO).await.is_ok() {
                        let _ = tokio::time::timeout(LAST_WORDS, running.daemon.exited()).await;
                        work.running = None;
                    }
                }
                Ok(clients) => {
                    tracing::warn!(device = %slot.seen().device, ?clients, "an MPS daemon stays: it has clients");
                }
                Err(error) => tracing::warn!(%error, "cannot ask an MPS daemon for its clients; it stays"),
            }
        }
    }
}
