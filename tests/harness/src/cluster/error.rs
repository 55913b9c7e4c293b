use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{Tier, Unavailable};
use crate::{
    certificates::CertificateError,
    host::{HostError, HostExecutableError},
    image::ImageError,
    tools::ToolError,
};

/// Failures of a cluster, or of something inside.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// A program could not be built.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// `cluster-host` was not found.
    #[error(transparent)]
    Executable(#[from] HostExecutableError),
    /// Something inside the cluster's namespaces failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Certificates could not be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// An image could not be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The API server refused a request, or could not be reached.
    #[error("the cluster's API: {0}")]
    Api(#[source] Box<kube::Error>),
    /// The node tier cannot run here.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// A file of the cluster cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The harness's own files cannot be parsed, or an option is invalid.
    #[error("{0}")]
    Configuration(String),
    /// A time limit has passed.
    #[error("{what} did not come in time; last seen: {last}")]
    NotReady {
        /// The awaited condition.
        what: String,
        /// The last state seen.
        last: String,
    },
    /// A component ended, but should run.
    #[error("{component} ended with {exit}; the end of its log:\n{log}")]
    Died {
        /// The component.
        component: String,
        /// The exit code or signal.
        exit: String,
        /// The last lines of its log.
        log: String,
    },
    /// A program, such as kubectl, failed.
    #[error("{command} failed ({exit}):\n{output}")]
    Command {
        /// The command.
        command: String,
        /// The exit code or signal.
        exit: String,
        /// Its output.
        output: String,
    },
    /// Possible only in the other tier.
    #[error("a cluster of the {0} tier has no {1}")]
    WrongTier(Tier, &'static str),
    /// The start failed; the cluster is ended, its logs are kept.
    #[error("{source}\nlogs of the cluster: {}", .logs.display())]
    Start {
        /// Where the logs are.
        logs: PathBuf,
        /// The error.
        #[source]
        source: Box<Self>,
    },
}

impl ClusterError {
    /// Whether a component ended because another process had its port.
    pub(crate) fn is_taken_port(&self) -> bool {
        match self {
            Self::Start { source, .. } => source.is_taken_port(),
            Self::Died { log, .. } => log.contains("address already in use"),
            _ => false,
        }
    }

    /// For `map_err` on file operations.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

impl From<kube::Error> for ClusterError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}
