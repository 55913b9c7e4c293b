use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::client_process::list;
use super::protocol::ErrorCode;

/// Why the supervisor could not do something.
#[derive(Debug, thiserror::Error)]
pub(super) enum MpsError {
    /// A limit makes no sense.
    #[error("memory limit of {0} MiB: at least 1 MiB and at most 16 TiB")]
    MemoryLimit(u64),
    /// A percentage makes no sense.
    #[error("active thread percentage of {0}: 1 to 100")]
    Percentage(u8),
    /// One daemon can't serve such devices.
    #[error("one daemon serves several whole cards, each once, or one partition")]
    Devices,
    /// A share of the multiprocessors makes no sense.
    #[error("a share of {0} % of the multiprocessors: 1 to 100")]
    StaticShare(u8),
    /// Shares that cannot all be there, as when one that leaves is not gone yet.
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
        /// Whether it has static partitions.
        is_static: bool,
    },
    /// A share is smaller than what the device's multiprocessors are given out in.
    #[error(
        "{compute} % of the {chunks} chunks of multiprocessors are less than one: ask for a larger share"
    )]
    LessThanAChunk {
        /// What was asked for.
        compute: u8,
        /// How many chunks the device has.
        chunks: u32,
    },
    /// The daemon does not make a partition.
    #[error(
        "the MPS control daemon made no partition of {chunks} chunks: {answer}{}",
        if *.left > 0 { format!("; processes of a share that has ended still hold {left} chunks") } else { String::new() }
    )]
    NoPartition {
        /// What was asked for.
        chunks: u32,
        /// What it said.
        answer: String,
        /// Chunks that nobody claims and that cannot be taken back.
        left: u32,
    },
    /// The daemon does not list its partitions.
    #[error(
        "the MPS control daemon does not list its static SM partitions, which come with CUDA 13.1: {0:.200}"
    )]
    NotListed(String),
    /// The driver comes without MPS.
    #[error(
        "there is no {program} below {root}: MPS is part of the driver's compute utilities; install them, or check \
         --driver-root"
    )]
    ProgramMissing {
        /// Which.
        program: &'static str,
        /// Where it was looked for.
        root: PathBuf,
    },
    /// A file or directory.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Something that is no socket, and cannot be removed, is in the socket's place.
    #[error("cannot make the socket {path}, for something else is there ({source}): remove it")]
    SocketTaken {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A program cannot be started.
    #[error("cannot run {program}: {source}")]
    Program {
        /// Which.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The control program takes too long.
    #[error("nvidia-cuda-mps-control did not answer {command:?} within {patience:?}")]
    NoAnswer {
        /// What it was asked.
        command: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// The daemon answers what cannot be understood.
    #[error(
        "the MPS control daemon answered {command:?} with {output:?}, which makes no sense; if it goes on, end the daemon: \
         it is started again when its clients have ended"
    )]
    Nonsense {
        /// What it was asked.
        command: String,
        /// The beginning of what it said.
        output: String,
    },
    /// No daemon behind the pipe directory.
    #[error("no control daemon answers in {0}")]
    NoDaemon(PathBuf),
    /// The daemon did not start.
    #[error("the MPS control daemon did not start: {output}; its log ends with: {log}")]
    NotStarted {
        /// What the program said.
        output: String,
        /// The end of its log.
        log: String,
    },
    /// The server did not start.
    #[error("the MPS server did not start: {output}; {log}")]
    NoServer {
        /// What the daemon said.
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
    /// The driver refuses.
    #[error("the driver: {0}")]
    Driver(String),
}

impl MpsError {
    /// Turns an error of the system about a path into one of these.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> MpsError {
        let path = path.to_owned();
        move |source| MpsError::File { path, source }
    }

    /// As the protocol names it.
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
