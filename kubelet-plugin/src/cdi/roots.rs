//! Paths of driver files and devices for this process, the host and containers.

use std::path::{Path, PathBuf};

use tessera_nvml::DriverRoot;

/// Paths of the driver's files and device nodes for this process and for the host (and so the container runtime). The two
/// differ in a pod. On an emulated machine both also differ from the paths in containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// Root of the driver's installation for this process.
    pub driver: PathBuf,
    /// Directories below it searched before the usual ones, for libraries and for programs.
    pub driver_paths: Vec<PathBuf>,
    /// The host's path of the same root.
    pub host_driver: PathBuf,
    /// Directory with `dev/` for this process.
    pub dev: PathBuf,
    /// sysfs for this process.
    pub sysfs: PathBuf,
    /// procfs for this process.
    pub proc: PathBuf,
}

impl Default for Roots {
    /// For a process on the host, with the driver installed on the host itself.
    fn default() -> Self {
        Self {
            driver: "/".into(),
            driver_paths: Vec::new(),
            host_driver: "/".into(),
            dev: "/".into(),
            sysfs: "/sys".into(),
            proc: "/proc".into(),
        }
    }
}

impl Roots {
    /// The driver's installation, with paths for this process.
    #[must_use]
    pub fn installed(&self) -> DriverRoot {
        DriverRoot { path: self.driver.clone(), first: self.driver_paths.clone() }
    }

    /// The host's path of this process's `path`: a path below the driver root is moved below the
    /// host's driver root, others stay unchanged.
    #[must_use]
    pub fn on_host(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.driver) {
            Ok(below) => self.host_driver.join(below),
            Err(_) => path.to_owned(),
        }
    }

    /// This process's path of the host's `path`, the inverse of [`Roots::on_host`].
    #[must_use]
    pub fn from_host(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.host_driver) {
            Ok(below) => self.driver.join(below),
            Err(_) => path.to_owned(),
        }
    }

    /// The path in containers of the driver file at this process's `path`: as if the driver were installed in
    /// the container.
    #[must_use]
    pub fn in_container(&self, path: &Path) -> PathBuf {
        Path::new("/").join(path.strip_prefix(&self.driver).unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_translated_below_the_driver_root_only() {
        let roots = Roots {
            driver: "/driver-root".into(),
            host_driver: "/run/nvidia/driver".into(),
            ..Roots::default()
        };
        let library = Path::new("/driver-root/usr/lib64/libcuda.so.580.95.05");
        assert_eq!(roots.on_host(library), Path::new("/run/nvidia/driver/usr/lib64/libcuda.so.580.95.05"));
        assert_eq!(roots.from_host(&roots.on_host(library)), library);
        assert_eq!(roots.in_container(library), Path::new("/usr/lib64/libcuda.so.580.95.05"));
        assert_eq!(roots.on_host(Path::new("/dev/nvidia0")), Path::new("/dev/nvidia0"));

        let host = Roots::default();
        assert_eq!(host.on_host(Path::new("/dev/nvidia0")), Path::new("/dev/nvidia0"));
    }
}
