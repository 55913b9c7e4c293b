//! `gpu-emulator create`.

use std::path::Path;

use super::dev::Nodes;
use super::error::CreateError;
use crate::machine::Machine;
use crate::state::Store;

/// Makes the directory of a machine. `programs` is where `gpu-emulator` lies, with the library and the stub tools;
/// `without` names functions to leave out of the library.
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
