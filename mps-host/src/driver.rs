//! Finds the MPS programs of a driver installation.

use std::path::{Path, PathBuf};

use super::error::MpsError;
use super::other_root;
use tessera_nvml::DriverRoot;

/// Directories below the driver root where the control program may be installed.
const DIRECTORIES: &[&str] =
    &["usr/bin", "bin", "usr/local/bin", "opt/bin", "usr/local/nvidia/bin", "run/current-system/sw/bin"];

/// Dynamic loaders of a complete system, below its root.
const LOADERS: &[&str] = &["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"];

const PROGRAM: &str = "nvidia-cuda-mps-control";

/// The server program, started by the control program from its own directory.
const SERVER: &str = "nvidia-cuda-mps-server";

/// How to run the MPS programs of a driver installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MpsProgram {
    /// Path of the program, as called.
    pub path: PathBuf,
    /// Root directory of the call, if not this process's own.
    pub root: Option<PathBuf>,
    /// Directory of its libraries, if the loader would not find them.
    pub libraries: Option<PathBuf>,
}

impl MpsProgram {
    /// Finds the program of the driver.
    ///
    /// A root with a dynamic loader is a complete system: its programs run in it, with its libraries. A root without
    /// one has only the driver: its libraries go before those of this system.
    pub fn find(installed: &DriverRoot) -> Result<Self, MpsError> {
        let driver_root = installed.path.as_path();
        // From the programs' view: a distribution's links may be absolute.
        let is_there = |path: &Path| other_root::find(driver_root, path).is_ok_and(|path| path.is_file());
        let named = installed.first.iter().map(PathBuf::as_path);
        let directory = named
            .chain(DIRECTORIES.iter().map(Path::new))
            .find(|directory| is_there(&directory.join(PROGRAM)))
            .ok_or_else(|| MpsError::ProgramMissing { program: PROGRAM, root: driver_root.to_owned() })?;
        // The daemon starts without the server, and reports the missing server only in its log at the first client.
        if !is_there(&directory.join(SERVER)) {
            return Err(MpsError::ProgramMissing { program: SERVER, root: driver_root.join(directory) });
        }
        let is_own = driver_root == Path::new("/");
        if is_own || LOADERS.iter().any(|loader| is_there(Path::new(loader))) {
            return Ok(Self {
                path: Path::new("/").join(directory).join(PROGRAM),
                root: (!is_own).then(|| driver_root.to_owned()),
                libraries: None,
            });
        }
        let library = installed.find_library().ok();
        Ok(Self {
            path: driver_root.join(directory).join(PROGRAM),
            root: None,
            libraries: library.and_then(|library| library.parent().map(Path::to_owned)),
        })
    }

    /// `PATH` for the program: the daemon looks for the server there.
    pub fn search_path(&self) -> String {
        let own = self.path.parent().unwrap_or(Path::new("/usr/bin"));
        format!("{}:/usr/bin:/bin", own.display())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_whole_system_is_entered_and_a_mere_driver_is_not() {
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(
            MpsProgram::find(&DriverRoot::from(root.path())),
            Err(MpsError::ProgramMissing { .. })
        ));
        fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        fs::write(root.path().join("usr/bin").join(PROGRAM), "").unwrap();
        let error = MpsProgram::find(&DriverRoot::from(root.path())).unwrap_err();
        assert!(matches!(error, MpsError::ProgramMissing { program: SERVER, .. }), "{error}");
        fs::write(root.path().join("usr/bin").join(SERVER), "").unwrap();
        let found = MpsProgram::find(&DriverRoot::from(root.path())).unwrap();
        assert_eq!((found.path, found.root), (root.path().join("usr/bin").join(PROGRAM), None));
        // An absolute link, as in Debian.
        let loader = "lib/x86_64-linux-gnu/ld.so";
        for directory in ["lib64", "lib/x86_64-linux-gnu"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        std::os::unix::fs::symlink(Path::new("/").join(loader), root.path().join(LOADERS[0])).unwrap();
        fs::write(root.path().join(loader), "").unwrap();
        let found = MpsProgram::find(&DriverRoot::from(root.path())).unwrap();
        assert_eq!(found.path, Path::new("/usr/bin").join(PROGRAM));
        assert_eq!(found.root.as_deref(), Some(root.path()));
    }
}
