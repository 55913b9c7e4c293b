//! Errors of the supervisor.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::client_process::list;
use super::protocol::ErrorCode;

/// Why the supervisor could not do something.
#[derive(Debug, thiserror::Error)]
pub(super) enum MpsError {
    /// A memory limit is out of range.
    #[error("memory limit of {0} MiB: at least 1 MiB and at most 16 TiB")]
    MemoryLimit(u64),
    /// A percentage is out of range.
    #[error("active thread percentage of {0}: 1 to 100")]
    Percentage(u8),
    /// One daemon can't serve these devices together.
    #[error("one daemon serves several whole cards, each once, or one partition")]
    Devices,
    /// A share of the multiprocessors is out of range.
    #[error("a share of {0} % of the multiprocessors: 1 to 100")]
    StaticShare(u8),
    /// The shares don't fit together, for example because a leaving one is still there.
    #[error(
        "the shares of the device have {0} % of its multiprocessors together: one of them must end first"
    )]
    StaticShares(u32),
    /// The running daemon is of the other kind.
    #[error(
        "the MPS daemon of the device runs {} static SM partitions: that changes when its last share has ended",
        if *.is_static { "with" } else { "without" }
    )]
    OtherKind {
        /// Whether the daemon has static partitions.
        is_static: bool,
    },
    /// A share is smaller than one chunk, the unit of allocation of the device's multiprocessors.
    #[error(
        "{compute} % of the {chunks} chunks of multiprocessors are less than one: ask for a larger share"
    )]
    LessThanAChunk {
        /// The requested percentage.
        compute: u8,
        /// How many chunks the device has.
        chunks: u32,
    },
    /// The daemon did not make a partition.
    #[error(
        "the MPS control daemon made no partition of {chunks} chunks: {answer}{}",
        if *.left > 0 { format!("; processes of a share that has ended still hold {left} chunks") } else { String::new() }
    )]
    NoPartition {
        /// The requested number of chunks.
        chunks: u32,
        /// Its answer.
        answer: String,
        /// Number of chunks without a share and impossible to take back.
        left: u32,
    },
    /// The daemon did not list its partitions.
    #[error(
        "the MPS control daemon does not list its static SM partitions, which come with CUDA 13.1: {0:.200}"
    )]
    NotListed(String),
    /// The driver is installed without MPS.
    #[error(
        "there is no {program} below {root}: MPS is part of the driver's compute utilities; install them, or check \
         --driver-root"
    )]
    ProgramMissing {
        /// The missing program.
        program: &'static str,
        /// The searched directory.
        root: PathBuf,
    },
    /// Access to a file or directory failed.
    #[error("{path}: {source}")]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The socket's path is taken by something else, which can't be removed.
    #[error("cannot make the socket {path}, for something else is there ({source}): remove it")]
    SocketTaken {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A program can't be started.
    #[error("cannot run {program}: {source}")]
    Program {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The control program did not answer in time.
    #[error("nvidia-cuda-mps-control did not answer {command:?} within {patience:?}")]
    NoAnswer {
        /// The command.
        command: String,
        /// The time limit.
        patience: Duration,
    },
    /// The daemon's answer can't be understood.
    #[error(
        "the MPS control daemon answered {command:?} with {output:?}, which makes no sense; if it goes on, end the daemon: \
         it is started again when its clients have ended"
    )]
    Nonsense {
        /// The command.
        command: String,
        /// The beginning of the answer.
        output: String,
    },
    /// No daemon answers in the pipe directory.
    #[error("no control daemon answers in {0}")]
    NoDaemon(PathBuf),
    /// The daemon did not start.
    #[error("the MPS control daemon did not start: {output}; its log ends with: {log}")]
    NotStarted {
        /// The program's output.
        output: String,
        /// The end of its log.
        log: String,
    },
    /// The server did not start.
    #[error("the MPS server did not start: {output}; {log}")]
    NoServer {
        /// The daemon's answer.
        output: String,
        /// The end of its log.
        log: String,
    },
    /// Other processes hold the device.
    #[error("{} hold the device; it can be shared when they have ended", list(.0))]
    InUse(Vec<u32>),
    /// A client faulted, and others have not left yet.
    #[error(
        "a program that was using the device faulted, and its MPS server takes no other before all that were using it have \
         ended{}: they have lost their contexts, start them again",
        if .0.is_empty() { String::new() } else { format!(": {}", list(.0)) }
    )]
    Fault(Vec<u32>),
    /// The driver refused.
    #[error("the driver: {0}")]
    Driver(String),
}

impl MpsError {
    /// Wraps an error of the system about a path.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> MpsError {
        let path = path.to_owned();
        move |source| MpsError::File { path, source }
    }

    /// The code of the error in the protocol.
    pub fn code(&self) -> ErrorCode {
        match self {
            MpsError::MemoryLimit(_)
            | MpsError::Percentage(_)
            | MpsError::Devices
            | MpsError::StaticShare(_)
            | MpsError::LessThanAChunk { .. } => ErrorCode::InvalidRequest,
            MpsError::ProgramMissing { .. } => ErrorCode::ProgramMissing,
            MpsError::InUse(_) | MpsError::Fault(_) => ErrorCode::DeviceInUse,
            _ => ErrorCode::Failed,
        }
    }
}
