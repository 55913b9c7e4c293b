//! Asks all daemons for their clients at once.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use super::protocol::{ClientProcess, DaemonClients};
use super::slot::Slot;
use super::supervisor::Supervisor;

/// Time limit of one daemon's answer. A list of clients shows the present state, including unresponsive daemons.
const PATIENCE: Duration = Duration::from_secs(2);

impl Supervisor {
    /// The clients of every daemon. Takes no daemon's lock, so a daemon being started or ended delays nothing.
    pub async fn clients_of_all(&self) -> Vec<DaemonClients> {
        join_all(self.all().into_iter().map(|slot| self.clients_of(slot))).await
    }

    async fn clients_of(&self, slot: Arc<Slot>) -> DaemonClients {
        let seen = slot.seen();
        let clients = match (seen.pid, self.control(&slot)) {
            (None, _) => Ok(Vec::new()),
            (Some(_), Ok(control)) => control.within(PATIENCE).clients().await,
            (Some(_), Err(error)) => Err(error),
        };
        let (clients, error) = match clients {
            Ok(pids) => (pids.into_iter().map(ClientProcess::of).collect(), None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        DaemonClients { device: seen.device, clients, error }
    }
}
