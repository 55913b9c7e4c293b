//! `gpu-emulator create`.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::dev::Nodes;
use crate::machine::Machine;
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

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> CreateError {
    let path = path.to_owned();
    move |source| CreateError::File { path, source }
}

/// Name of the library as cargo builds it.
const LIBRARY: &str = "libtessera_emulator.so";

/// Makes the directory of a machine. `programs` is where `gpu-emulator` lies, with the library and the stub tools.
///
/// # Errors
/// When there is a machine already, something built with `gpu-emulator` is missing, or a file cannot be made.
pub fn create(root: &Path, machine: &Machine, programs: &Path) -> Result<Nodes, CreateError> {
    let store = Store::new(root);
    if store.exists() {
        return Err(CreateError::Exists(root.to_owned()));
    }
    let library = programs.join(LIBRARY);
    if !library.is_file() {
        return Err(CreateError::Missing { path: library });
    }
    let lib = root.join("lib");
    fs::create_dir_all(&lib).map_err(at(&lib))?;
    let versioned = lib.join(format!("libnvidia-ml.so.{}", machine.driver.version));
    fs::copy(&library, &versioned).map_err(at(&versioned))?;
    link(&lib.join("libnvidia-ml.so.1"), &format!("libnvidia-ml.so.{}", machine.driver.version))?;
    super::sys::create(root, machine)?;
    super::proc::create(root, machine)?;
    let nodes = super::dev::create(root, machine)?;
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
