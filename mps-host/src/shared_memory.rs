//! `/dev/shm` of daemons.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::error::MpsError;

/// Gives a daemon a `/dev/shm` of its own, to be shared only with its clients. Its limit is `size` bytes; data written
/// there counts towards the memory limit of the writing container.
pub(super) fn make(directory: &Path, size: u64) -> Result<(), MpsError> {
    fs::create_dir_all(directory).map_err(MpsError::at(directory))?;
    if is_mounted(directory) {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let options = format!("mode=1777,size={size}");
    mount(Some("mps"), directory, Some("tmpfs"), flags, Some(options.as_str()))
        .map_err(io::Error::from)
        .map_err(MpsError::at(directory))
}

/// Removes the file system. Processes keep their open and mapped files.
pub(super) fn remove(directory: &Path) -> Result<(), MpsError> {
    while is_mounted(directory) {
        umount2(directory, MntFlags::MNT_DETACH).map_err(io::Error::from).map_err(MpsError::at(directory))?;
    }
    Ok(())
}

/// Whether something is mounted there.
fn is_mounted(directory: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    let parent = directory.parent().and_then(device);
    device(directory).is_some_and(|own| Some(own) != parent)
}
