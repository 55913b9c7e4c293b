//! Files in a machine's directory.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::error::{CreateError, at};

/// Removes the remains of an interrupted creation at `path`, if any.
pub(super) fn remove(path: &Path) -> Result<(), CreateError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
        _ => Ok(()),
    }
}

/// Makes a symbolic link at `path`, in place of whatever is there.
pub(super) fn link(path: &Path, target: &str) -> Result<(), CreateError> {
    remove(path)?;
    symlink(target, path).map_err(at(path))
}
