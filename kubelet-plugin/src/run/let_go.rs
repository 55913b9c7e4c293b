//! Releases the cards while an administrator's file exists: a tool needs a card for itself to reset or flash it.
//!
//! The file is in the plugin's own directory, where only root of the node can make one: no pod can ask, no port is open, and the
//! node needs no program but `touch`.

use std::path::PathBuf;
use std::time::Duration;

use tessera_kube_util::events::{NodeEvents, Severity};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::driver::{Closed, DriverCloser};

/// Name of the file.
pub const FILE: &str = "let-go";

/// Reasons of the Events.
const LET_GO: &str = "CardsLetGo";
const TAKEN: &str = "CardsTaken";

/// How often to look for the file.
const LOOK: Duration = Duration::from_secs(1);

/// The longest time without the cards for one file.
const LONGEST: Duration = Duration::from_secs(600);

/// Pause after a failed attempt.
const PAUSE: Duration = Duration::from_secs(5);

/// Follows the file.
pub struct LetGoFile {
    /// The file.
    pub file: PathBuf,
    /// Closes the driver library.
    pub closer: DriverCloser,
    /// Receives whether the cards are let go of: they get no new claims then.
    pub is_let_go: watch::Sender<bool>,
    /// Sends Events of the node.
    pub of_node: NodeEvents,
}

impl LetGoFile {
    /// Works until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&self) {
        let minutes = LONGEST.as_secs() / 60;
        let why =
            format!("the cards are let go of until {} is removed, or {minutes} min old", self.file.display());
        let mut told = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let is_there = self.is_there();
            self.is_let_go.send_if_modified(|sent| std::mem::replace(sent, is_there) != is_there);
            if !is_there {
                continue;
            }
            let closed = tokio::select! {
                closed = self.closer.close(why.clone()) => closed,
                () = self.until_it_is_gone() => continue,
            };
            match closed {
                Ok(closed) => self.keep(closed, &why).await,
                Err(error) => {
                    if told.replace(error.clone()).as_ref() != Some(&error) {
                        tracing::warn!("the cards cannot be let go of: {error}");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Keeps the library closed until the file is gone, or too old; then removes the file.
    async fn keep(&self, closed: Closed, why: &str) {
        tracing::info!("{why}");
        self.of_node.send(Severity::Normal, "LetGo", LET_GO, why).await;
        // The clock may be set back meanwhile.
        let _ = tokio::time::timeout(LONGEST, self.until_it_is_gone()).await;
        drop(closed);
        // The administrator has mostly removed the file.
        let _ = std::fs::remove_file(&self.file);
        let note = "the cards of this node are the plugin's again";
        tracing::info!("{note}");
        self.of_node.send(Severity::Normal, "LetGo", TAKEN, note).await;
    }

    async fn until_it_is_gone(&self) {
        while self.is_there() {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn is_there(&self) -> bool {
        let modified = std::fs::metadata(&self.file).and_then(|metadata| metadata.modified());
        modified.is_ok_and(|at| at.elapsed().unwrap_or_default() < LONGEST)
    }
}
