//! A cluster: start, state and end.

mod audit;
mod availability;
mod commands;
mod components;
mod error;
mod failure;
mod namespaces;
mod nodes;
mod options;
mod pods;
mod prepare;
mod ready;
mod record;
mod start;
mod users;
mod version;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Child, ChildStdin},
    time::Duration,
};

pub use availability::Unavailable;
pub use commands::CommandOutput;
pub use components::Component;
pub use error::ClusterError;
pub use options::{ClusterOptions, ExtraFlags, Tier};
pub use pods::PodState;
pub(crate) use ready::log_end;
pub use record::ClusterRecord;
use tokio::time::{Instant, sleep};
pub use version::KubernetesVersion;

use crate::{
    host::{Host, RELEASE},
    node::Node,
    timings::Timings,
    tools::Tools,
};

/// A running cluster, ended when this value is dropped, or when the process ends for any reason, unless
/// released.
#[derive(Debug)]
pub struct Cluster {
    record: ClusterRecord,
    timings: Timings,
    supervisor: Option<Supervisor>,
}

/// The supervisor process. Closing the pipe to the process ends the cluster.
#[derive(Debug)]
struct Supervisor {
    process: Child,
    pipe: Option<ChildStdin>,
}

impl Cluster {
    /// Starts a cluster and waits until pods can run. Missing tools are built first, within minutes.
    ///
    /// # Errors
    /// See [`ClusterError`]; started processes are ended again, and the error names the logs' directory.
    pub async fn start(options: ClusterOptions) -> Result<Self, ClusterError> {
        start::start(options).await
    }

    /// Attaches to a running cluster by its directory. Dropping the value leaves it running.
    ///
    /// # Errors
    /// There is no cluster, or no answer from one.
    pub async fn attach(state: &Path) -> Result<Self, ClusterError> {
        let record = ClusterRecord::read(state)?;
        let cluster = Self { record, timings: Timings::default(), supervisor: None };
        cluster.control_plane().processes().await?;
        Ok(cluster)
    }

    /// Its tier.
    pub fn tier(&self) -> Tier {
        self.record.tier
    }

    /// The cluster's directory.
    pub fn state(&self) -> &Path {
        &self.record.state
    }

    /// Folder with one log for each process.
    pub fn logs(&self) -> PathBuf {
        self.record.state.join("log")
    }

    /// The nodes of the node tier, in order; empty in the scheduler tier, whose nodes are API objects.
    pub fn nodes(&self) -> &[Node] {
        &self.record.nodes
    }

    /// A node by its index.
    ///
    /// # Panics
    /// There are fewer nodes.
    pub fn node(&self, index: usize) -> &Node {
        &self.record.nodes[index]
    }

    /// Duration of each phase of the start.
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// The cluster's programs.
    pub fn tools(&self) -> &Tools {
        &self.record.tools
    }

    /// Access to the control plane's namespaces or, in the scheduler tier, to its processes.
    pub fn control_plane(&self) -> Host {
        self.record.control_plane()
    }

    /// Marks a failed test, so the logs are kept.
    pub fn keep_logs(&self) {
        failure::mark(self.state());
    }

    /// Lets the cluster outlive this process, until [`Cluster::shutdown`] or the end of the machine.
    ///
    /// # Errors
    /// The cluster has ended already.
    pub fn release(mut self) -> Result<PathBuf, ClusterError> {
        let state = self.record.state.clone();
        if let Some(mut pipe) = self.supervisor.take().and_then(|mut supervisor| supervisor.pipe.take()) {
            pipe.write_all(&[RELEASE]).map_err(ClusterError::io(&state))?;
        }
        failure::forget(&state);
        Ok(state)
    }

    /// Ends the cluster and waits until all its processes and files are gone.
    ///
    /// # Errors
    /// Still running after a minute.
    pub async fn shutdown(self) -> Result<(), ClusterError> {
        let state = self.record.state.clone();
        // The connection may break before the answer, because the host ends.
        let _ = self.control_plane().shutdown().await;
        drop(self);
        let end = Instant::now() + Duration::from_secs(60);
        let over = || !state.exists() || (state.join("failed").exists() && !state.join("lock").exists());
        while !over() {
            if Instant::now() > end {
                return Err(ClusterError::NotReady {
                    what: "the end of the cluster".to_owned(),
                    last: format!("{} is still there", state.display()),
                });
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let Some(mut supervisor) = self.supervisor.take() else { return };
        if std::thread::panicking() {
            failure::mark(self.state());
        }
        drop(supervisor.pipe.take());
        // Takes tenths of a second. Nothing is left afterwards to disturb the next test.
        let _ = supervisor.process.wait();
        failure::forget(self.state());
    }
}
