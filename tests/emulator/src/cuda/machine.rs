//! Finds the emulated machine of a program.

use std::path::{Path, PathBuf};

use crate::state::Store;

/// Names the machine's directory for a program elsewhere, for example in a container.
pub const VARIABLE: &str = "GPU_EMULATOR_MACHINE";

/// The machine named by [`VARIABLE`], or the one with the running program in its `bin`.
///
/// # Errors
/// When there is none.
pub fn find() -> Result<Store, String> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let own = std::env::current_exe().ok().and_then(|path| path.ancestors().nth(2).map(Path::to_owned));
    let root = named.or(own).unwrap_or_default();
    let store = Store::new(&root);
    if store.exists() {
        return Ok(store);
    }
    Err(format!(
        "{} is no emulated machine: start the program from a machine's bin, or name the machine in {VARIABLE}",
        root.display()
    ))
}
