//! Command line of `mps-host`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::directory::{self, DEFAULT_DIRECTORY};
use tessera_api::Quantity;
use tessera_kube_util::arguments::{absolute, below_root};
use tessera_kube_util::logging::{LogFormat, log_filter, log_level};
use tessera_nvml::DriverRoot;

/// Least size of shared memory, in bytes. The kernel takes 0 for no limit.
const LEAST_SHARED_MEMORY: u64 = 1 << 20;

/// Runs the MPS control daemons of this node's shared cards and partitions, on request of the kubelet plugin.
///
/// Runs on each node whose cards may be shared by MPS, as root, usually in a pod of the DaemonSet that Tessera's chart
/// installs with `sharing.mps.enabled`. It only reaps processes and restarts its child, which does the work and finds
/// running daemons again: clients on the cards survive the end of every process but this one and their daemons.
///
/// SIGTERM ends the daemons without clients at once, and this process when all daemons have ended.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "mps-host",
    version,
    max_term_width = 100,
    after_help = "mps-host list, mps-host check and mps-host events show the daemons of a running mps-host; see their --help."
)]
pub struct Options {
    /// Directory for the socket and the daemons' directories, the same in the pod as on the node.
    ///
    /// On a file system that a reboot empties. Its path must be short: the daemons' sockets must fit into 107 bytes.
    #[arg(
        long,
        env = "MPS_DIRECTORY",
        value_name = "DIRECTORY",
        default_value = DEFAULT_DIRECTORY,
        value_parser = mps_directory
    )]
    pub directory: PathBuf,

    /// Where the NVIDIA driver is installed, as this process sees it.
    #[arg(long, env = "DRIVER_ROOT", value_name = "DIRECTORY", default_value = "/", value_parser = absolute)]
    pub driver_root: PathBuf,

    /// Directories below --driver-root that are searched before the usual ones: of the driver's libraries, and of its programs.
    #[arg(long, env = "DRIVER_PATHS", value_name = "DIRECTORIES", value_delimiter = ',', value_parser = below_root)]
    driver_paths: Vec<PathBuf>,

    /// What daemons and their clients have as /dev/shm.
    #[arg(long, env = "SHARED_MEMORY", value_name = "KIND", default_value = "tmpfs")]
    pub shared_memory: SharedMemory,

    /// Size of each daemon's /dev/shm, which all clients of a card or partition fill together: bytes, or 512Mi, 4Gi.
    ///
    /// Daemons that run keep the size that they have.
    #[arg(
        long,
        env = "SHARED_MEMORY_SIZE",
        value_name = "SIZE",
        default_value = "4Gi",
        value_parser = shared_memory_size
    )]
    pub shared_memory_size: u64,

    /// What to log: a level (`error`, `warn`, `info`, `debug`, `trace`), or levels by part of the program.
    #[arg(long, env = "LOG_LEVEL", value_name = "LEVEL", default_value = "info", value_parser = log_level)]
    pub log_level: String,

    /// How to log: lines for people, or one JSON object per line.
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// What daemons and their clients have as `/dev/shm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SharedMemory {
    /// A file system of each daemon's own, of the size that --shared-memory-size says. Needs CAP_SYS_ADMIN.
    Tmpfs,
    /// Their own: daemon and clients must run in the node's IPC namespace.
    None,
}

impl Options {
    /// The driver's installation directory, as mounted in this process.
    #[must_use]
    pub fn installed(&self) -> DriverRoot {
        DriverRoot { path: self.driver_root.clone(), first: self.driver_paths.clone() }
    }

    /// The directives for log levels.
    #[must_use]
    pub fn log_filter(&self) -> String {
        log_filter(&self.log_level)
    }
}

/// Parses the size of shared memory, a Kubernetes quantity, to bytes.
///
/// # Errors
/// A text describing the problem.
pub fn shared_memory_size(text: &str) -> Result<u64, String> {
    let size: Quantity = text.parse().map_err(|error| format!("{error}"))?;
    let bytes = size.as_integer().and_then(|bytes| u64::try_from(bytes).ok());
    bytes
        .filter(|bytes| *bytes >= LEAST_SHARED_MEMORY)
        .ok_or_else(|| "must be whole bytes, at least 1Mi".to_owned())
}

/// Parses the path of the daemons' directory.
///
/// # Errors
/// A text describing the problem.
pub fn mps_directory(text: &str) -> Result<PathBuf, String> {
    let path = absolute(text)?;
    match directory::excess(&path) {
        0 => Ok(path),
        bytes => Err(format!("{bytes} bytes too long: sockets below it would pass 107 bytes")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent_and_every_option_is_explained() {
        Options::command().debug_assert();
        for argument in Options::command().get_arguments() {
            assert!(argument.get_help().is_some(), "{}", argument.get_id());
        }
    }

    #[test]
    fn sizes_of_shared_memory() {
        let size = |text: &str| {
            Options::try_parse_from(["mps-host".to_owned(), format!("--shared-memory-size={text}")])
                .map(|options| options.shared_memory_size)
        };
        assert_eq!(Options::try_parse_from(["mps-host"]).unwrap().shared_memory_size, 4 << 30);
        assert_eq!((size("512Mi").unwrap(), size("1048576").unwrap()), (512 << 20, 1 << 20));
        for wrong in ["0", "-1Gi", "1000", "much", "1048576500m"] {
            let error = size(wrong).unwrap_err().to_string();
            assert!(error.contains("--shared-memory-size"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_directory_whose_sockets_would_not_fit_is_refused() {
        let long = "/var/lib/kubelet/plugins/gpu.tessera.dev/mps";
        let error = Options::try_parse_from(["mps-host", "--directory", long]).unwrap_err().to_string();
        assert!(error.contains("107"), "{error}");
    }
}
