//! The directories of a daemon, as the environment names them.

use std::path::{Path, PathBuf};

/// Where a daemon, its servers and their clients meet.
#[derive(Clone, Debug)]
pub struct Place {
    /// `CUDA_MPS_PIPE_DIRECTORY`
    pub pipe: PathBuf,
    /// `CUDA_MPS_LOG_DIRECTORY`
    pub log: PathBuf,
}

impl Place {
    /// From the environment, or NVIDIA's defaults.
    pub fn of_environment() -> Self {
        let directory = |name: &str, default: &str| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map_or(default.into(), PathBuf::from)
        };
        Place {
            pipe: directory("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"),
            log: directory("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"),
        }
    }

    /// Socket for clients, open to everyone.
    pub fn control(&self) -> PathBuf {
        self.pipe.join("control")
    }

    /// Socket for commands, open to the daemon's user.
    pub fn privileged(&self) -> PathBuf {
        self.pipe.join("control_privileged")
    }

    /// Locked as long as a daemon lives.
    pub fn lock(&self) -> PathBuf {
        self.pipe.join("control_lock")
    }

    /// Named pipe for the servers' logs.
    pub fn log_pipe(&self) -> PathBuf {
        self.pipe.join("log")
    }

    /// File with the daemon's process id; removed by an orderly end.
    pub fn pid(&self) -> PathBuf {
        self.pipe.join("nvidia-cuda-mps-control.pid")
    }

    /// Socket of a server. Its name is made up here.
    pub fn server(&self, pid: u32) -> PathBuf {
        self.pipe.join(format!("server-{pid}"))
    }
}

/// A program beside the running one.
pub fn beside(name: &str) -> std::io::Result<PathBuf> {
    let current = std::env::current_exe()?;
    Ok(current.parent().unwrap_or(Path::new(".")).join(name))
}
