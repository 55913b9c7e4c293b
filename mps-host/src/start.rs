//! Starts a daemon and its server.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use super::compute_mode::{EXCLUSIVE_PROCESS, PROHIBITED};
use super::control::{Control, ServerStatus};
use super::error::MpsError;
use super::partitions;
use super::processes::{self, Role};
use super::record::Record;
use super::remove::remove_content;
use super::shared_memory;
use super::slot::{Running, Slot, Work};
use super::supervisor::Supervisor;

/// How long a server may take until ready for clients. NVIDIA's takes some 75 ms; initialising a card takes seconds.
const SERVER_PATIENCE: Duration = Duration::from_secs(20);

/// First and longest pause between two looks at a starting server.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LONGEST_LOOK: Duration = Duration::from_millis(50);

impl Supervisor {
    /// Starts the daemon described by the record, over the remains of a dead one. Does nothing while clients of a dead
    /// one still run.
    pub async fn start(&self, slot: &Slot, work: &mut Work) -> Result<(), MpsError> {
        let control = self.control(slot)?;
        self.end_left_behind(slot, work).await?;
        let started = self.start_daemon(slot, work, &control).await;
        if started.is_err() {
            self.abandon(slot, work, &control).await;
        }
        started
    }

    /// Ends servers whose daemon died, unless they have clients.
    async fn end_left_behind(&self, slot: &Slot, work: &Work) -> Result<(), MpsError> {
        let left = processes::all(&slot.directory);
        if left.is_empty() {
            return Ok(());
        }
        if let Some(record) = &work.record
            && left.iter().any(|(role, _)| *role == Role::Server)
        {
            let clients = self.clients_on(record).await?;
            if !clients.is_empty() {
                return Err(MpsError::InUse(clients));
            }
        }
        for (_, process) in left {
            process.kill().await;
        }
        Ok(())
    }

    /// Sets the mode for a single process on each card, the server: otherwise a container bypassing MPS would bypass
    /// its limits. Records the mode before. Partitions have no mode of their own, and a card with partitions has one
    /// server for each: NVIDIA's documentation says to leave the mode.
    async fn take_cards(&self, slot: &Slot, record: &mut Record) -> Result<(), MpsError> {
        let was_closed = record.closed;
        let mut to_set = Vec::new();
        for (card, before) in record.modes() {
            let mode = self.driver_card(card).compute_mode().await?;
            if mode != EXCLUSIVE_PROCESS {
                if !(was_closed && mode == PROHIBITED) {
                    *before = Some(mode);
                }
                to_set.push(card);
            }
        }
        if to_set.is_empty() {
            return Ok(());
        }
        record.write(&slot.directory)?;
        for card in to_set {
            self.driver_card(card).set_compute_mode(EXCLUSIVE_PROCESS).await?;
        }
        if was_closed {
            record.closed = false;
            record.write(&slot.directory)?;
        }
        Ok(())
    }

    /// Closes the cards to new programs while there is no daemon: a program started now would find none, and have a
    /// whole card without limits. Running programs go on.
    pub async fn close_cards(&self, slot: &Slot, work: &mut Work) -> Result<(), MpsError> {
        let Some(record) = work.record.as_mut().filter(|record| record.wanted) else { return Ok(()) };
        let mut to_set = Vec::new();
        for (card, before) in record.modes() {
            if self.driver_card(card).compute_mode().await? == EXCLUSIVE_PROCESS {
                before.get_or_insert(EXCLUSIVE_PROCESS);
                to_set.push(card);
            }
        }
        if to_set.is_empty() {
            return Ok(());
        }
        record.closed = true;
        record.write(&slot.directory)?;
        for card in to_set {
            self.driver_card(card).set_compute_mode(PROHIBITED).await?;
        }
        Ok(())
    }

    async fn start_daemon(&self, slot: &Slot, work: &mut Work, control: &Control) -> Result<(), MpsError> {
        let directory = &slot.directory;
        // A dead daemon's sockets and logs would be taken for the new one's. Keep the directories themselves:
        // containers have them mounted, and would never notice new ones.
        for old in [&directory.pipe, &directory.log] {
            remove_content(old).await?;
            fs::create_dir_all(old).map_err(MpsError::at(old))?;
            fs::set_permissions(old, fs::Permissions::from_mode(0o755)).map_err(MpsError::at(old))?;
        }
        if let Some(size) = self.shm_size {
            shared_memory::make(&directory.shm, size)?;
        }
        let is_static = work.record.as_ref().is_some_and(Record::is_static);
        control.start(is_static).await?;
        let daemon = processes::daemon(directory).ok_or_else(|| MpsError::NotStarted {
            output: "it ended again".to_owned(),
            log: control.log_end("control.log"),
        })?;
        work.running = Some(Running::new(daemon, None));
        if let Some(record) = &mut work.record {
            control.limit(record, &[]).await?;
            // Only now, so that newly admitted programs find a daemon.
            self.take_cards(slot, record).await?;
        }
        self.partition(slot, work, control).await?;
        self.start_server(slot, work, control).await
    }

    /// Makes the partitions of the shares in a daemon with static partitions. Before starting the server, as in
    /// NVIDIA's examples: the first such command makes the daemon open the device.
    pub async fn partition(&self, slot: &Slot, work: &mut Work, control: &Control) -> Result<(), MpsError> {
        let Some(record) = &mut work.record else { return Ok(()) };
        let Some(mut shares) = record.static_partitions.clone() else { return Ok(()) };
        let made = partitions::reconcile(control, &mut shares, |shares| {
            record.static_partitions = Some(shares.to_vec());
            record.write(&slot.directory)
        })
        .await;
        record.static_partitions = Some(shares);
        made?;
        record.write(&slot.directory)
    }

    /// Makes the daemon start its server, and waits until the server takes clients. Otherwise the first client would
    /// start the server, and until then anybody could use the card.
    pub async fn start_server(
        &self,
        slot: &Slot,
        work: &mut Work,
        control: &Control,
    ) -> Result<(), MpsError> {
        let output = control.start_server().await?;
        let since = Instant::now();
        let mut pause = FIRST_LOOK;
        let server = loop {
            match control.servers().await?.first() {
                Some(server) if control.server_status(*server).await? != ServerStatus::Initializing => {
                    break *server;
                }
                None if !output.is_empty() => return Err(self.no_server(work, control, output).await),
                _ if since.elapsed() > SERVER_PATIENCE => {
                    return Err(self.no_server(work, control, "it takes too long".to_owned()).await);
                }
                _ => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST_LOOK);
        };
        if let Some(running) = &mut work.running {
            // Believe the daemon only about processes of its own.
            running.server = processes::server(server, &slot.directory);
            running.fault = None;
        }
        tracing::debug!(device = %slot.seen().device, server, elapsed = ?since.elapsed(), "MPS server ready");
        Ok(())
    }

    /// The reason why there is no server: usually another process is on the card.
    async fn no_server(&self, work: &Work, control: &Control, output: String) -> MpsError {
        if let Some(record) = work.record.as_ref().filter(|record| !record.device.is_partition()) {
            for card in record.cards() {
                if let Ok(holders) = self.driver_card(card).holders().await
                    && !holders.is_empty()
                {
                    return MpsError::InUse(holders);
                }
            }
        }
        MpsError::NoServer { output, log: control.log_end("control.log") }
    }

    /// Ends a daemon after a failed start.
    async fn abandon(&self, slot: &Slot, work: &mut Work, control: &Control) {
        if work.running.take().is_some()
            && let Err(error) = control.quit(Duration::ZERO).await
        {
            tracing::warn!(%error, "cannot end a daemon that does not work; killing it");
        }
        for (_, process) in processes::all(&slot.directory) {
            process.kill().await;
        }
    }
}
