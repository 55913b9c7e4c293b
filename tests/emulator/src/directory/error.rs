use std::io;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::state::StoreError;

/// Why a machine's directory cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The directory already has a machine.
    #[error("{0} holds an emulated machine already; remove it first, or choose another directory")]
    Exists(PathBuf),
    /// A file built with `gpu-emulator` does not lie beside the program.
    #[error(
        "{path} is missing: it is built together with gpu-emulator (cargo build -p tessera-emulator) and must lie beside it"
    )]
    Missing {
        /// Path of the missing file.
        path: PathBuf,
    },
    /// The library beside `gpu-emulator` is not a valid one.
    #[error("{path}: {problem}; build it anew (cargo build -p tessera-emulator)")]
    Library {
        /// Path of the library.
        path: PathBuf,
        /// The defect.
        problem: super::elf::NotALibrary,
    },
    /// A function to leave out is not in the library.
    #[error("the library has no function {0}; gpu-emulator's data/nvml-functions.txt lists those it has")]
    UnknownFunction(String),
    /// A file cannot be made.
    #[error("{path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The state cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CreateError {
    /// NVML's error for a file that could not be changed.
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

/// The error of a failed creation or change of a file.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> CreateError {
    let path = path.to_owned();
    move |source| CreateError::File { path, source }
}
