//! `gpu-emulator create`.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::dev::Nodes;
use crate::machine::Machine;
use crate::nvml::Failure;
use crate::state::{Store, StoreError};

/// Why a machine's directory cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// There is a machine in it already.
    #[error("{0} holds an emulated machine already; remove it first, or choose another directory")]
    Exists(PathBuf),
    /// Something that is built with `gpu-emulator` does not lie beside it.
    #[error(
        "{path} is missing: it is built together with gpu-emulator (cargo build -p tessera-emulator) and must lie beside it"
    )]
    Missing {
        /// What was looked for.
        path: PathBuf,
    },
    /// The library beside `gpu-emulator` is none.
    #[error("{path}: {problem}; build it anew (cargo build -p tessera-emulator)")]
    Library {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: super::elf::NotALibrary,
    },
    /// A function that shall be left out is none of the library.
    #[error("the library has no function {0}; gpu-emulator's data/nvml-functions.txt lists those it has")]
    UnknownFunction(String),
    /// A file cannot be made.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The state cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CreateError {
    /// What NVML says where a file could not be changed.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            CreateError::File { source, .. }
                if matches!(
                    source.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                Failure::NO_PERMISSION
            }
            _ => Failure::UNKNOWN,
        }
    }
}

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> CreateError {
    let path = path.to_owned();
    move |source| CreateError::File { path, source }
}

/// Makes the directory of a machine. `programs` is where `gpu-emulator` lies, with the library and the stub tools;
/// `without` names functions that the library shall lack.
///
/// # Errors
/// When there is a machine already, something built with `gpu-emulator` is missing, or a file cannot be made.
pub fn create(
    root: &Path,
    machine: &Machine,
    programs: &Path,
    without: &[String],
) -> Result<Nodes, CreateError> {
    let store = Store::new(root);
    if store.exists() {
        return Err(CreateError::Exists(root.to_owned()));
    }
    super::driver_files::create(root, machine, programs, without)?;
    super::sys::create(root, machine)?;
    super::proc::create(root, machine)?;
    let nodes = super::dev::create(root, machine)?;
    super::capabilities::create(root, machine)?;
    store.create(machine)?;
    Ok(nodes)
}

/// Makes a symbolic link at `path`.
pub(super) fn link(path: &Path, target: &str) -> Result<(), CreateError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(path)(error)),
        _ => {}
    }
    symlink(target, path).map_err(at(path))
}
