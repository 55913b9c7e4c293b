//! Paths of the daemons' directories.

use std::path::{Path, PathBuf};

use super::device::DeviceUuid;

/// Default directory for the daemons' directories on a node. It is on a file system emptied by a reboot, because a
/// reboot also resets the cards.
pub const DEFAULT_DIRECTORY: &str = "/run/tessera/mps";

/// Name of the supervisor's socket in the directory.
pub const SOCKET: &str = "host.sock";

/// Name of the lock file in the directory, locked while mps-host works there.
pub(super) const LOCK: &str = "host.lock";

/// The longest path of a unix socket (`sun_path` of `unix(7)` without its final zero). A daemon with longer socket
/// paths starts, but then only reports failing to find itself.
const LONGEST_SOCKET: usize = 107;

/// Length of a daemon's longest socket path below the directory, bytes: `/GPU-<36>/pipe/control_privileged`.
const DAEMON_PART: usize = 1 + 40 + "/pipe/control_privileged".len();

/// The directory of one daemon.
#[derive(Clone, Debug)]
pub(super) struct DaemonDirectory {
    /// The whole directory.
    pub root: PathBuf,
    /// `CUDA_MPS_PIPE_DIRECTORY`
    pub pipe: PathBuf,
    /// `CUDA_MPS_LOG_DIRECTORY`
    pub log: PathBuf,
    /// `/dev/shm` of daemon and clients.
    pub shm: PathBuf,
    /// The supervisor's record of the daemon.
    pub record: PathBuf,
}

impl DaemonDirectory {
    pub fn new(directory: &Path, device: &DeviceUuid) -> Self {
        let root = directory.join(device.as_str());
        Self {
            pipe: root.join("pipe"),
            log: root.join("log"),
            shm: root.join("shm"),
            record: root.join("daemon.json"),
            root,
        }
    }

    /// File with the daemon's process id.
    pub fn pid(&self) -> PathBuf {
        self.pipe.join("nvidia-cuda-mps-control.pid")
    }

    /// Output of the starting program.
    pub fn output(&self) -> PathBuf {
        self.log.join("start.log")
    }
}

/// How many bytes the directory's path is too long for daemons' sockets; 0 if short enough.
pub(super) fn excess(directory: &Path) -> usize {
    (directory.as_os_str().len() + DAEMON_PART).saturating_sub(LONGEST_SOCKET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelets_directory_would_be_too_long() {
        assert_eq!(excess(Path::new(DEFAULT_DIRECTORY)), 0);
        assert!(excess(Path::new("/var/lib/kubelet/plugins/gpu.tessera.dev/mps")) > 0);
    }
}
