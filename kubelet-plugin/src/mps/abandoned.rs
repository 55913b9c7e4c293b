//! Cards whose daemons died with mps-host. Told to end, mps-host closes them itself; killed at once it cannot, and a program that
//! is started again before the next one runs would find no daemon, and have a whole card without limits. The plugin notices
//! within milliseconds that it is gone, and does it in its place.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tessera_api::PciBusId;
use tessera_nvml::{ComputeMode, Nvml, NvmlError, PciAddress};

use super::DeviceUuid;
use super::compute_mode::EXCLUSIVE_PROCESS;
use super::directory::{DaemonDirectory, LOCK};
use super::error::MpsError;
use super::record::Record;

/// Why a card stays open.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum AbandonedError {
    /// A file, or what is written down of a daemon.
    File(#[from] io::Error),
    /// The driver refuses.
    Driver(#[from] NvmlError),
}

/// Lets nobody onto the cards whose daemons are dead while no mps-host works in `directory`: compute mode PROHIBITED, written
/// down as mps-host does it itself, so that the next one opens them again. Gives the cards that were closed. Does nothing
/// while mps-host is there, which does not begin either as long as this takes. Blocks.
///
/// # Errors
/// [`AbandonedError`] of the first daemon whose cards can't be closed; those of the others are.
pub fn close_abandoned(directory: &Path, nvml: &dyn Nvml) -> Result<Vec<PciBusId>, AbandonedError> {
    let lock = match File::open(directory.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        lock => lock?,
    };
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(Vec::new()),
        locked => locked.map_err(io::Error::from)?,
    }
    let devices =
        fs::read_dir(directory)?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let (mut closed, mut failed) = (Vec::new(), None);
    for device in devices {
        match close(&DaemonDirectory::new(directory, &device), &device, nvml) {
            Ok(cards) => closed.extend(cards),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(closed), Err)
}

fn close(
    directory: &DaemonDirectory,
    device: &DeviceUuid,
    nvml: &dyn Nvml,
) -> Result<Vec<PciBusId>, AbandonedError> {
    if listens(&directory.pipe.join("control")) {
        return Ok(Vec::new());
    }
    let record = Record::read(directory)?.filter(|record| record.device == *device && record.wanted);
    let Some(mut record) = record else { return Ok(Vec::new()) };
    let mut to_close = Vec::new();
    for (card, before) in record.modes() {
        if nvml.card(address(card))?.compute_mode? == Some(ComputeMode::ExclusiveProcess) {
            before.get_or_insert(EXCLUSIVE_PROCESS);
            to_close.push(card);
        }
    }
    if to_close.is_empty() {
        return Ok(Vec::new());
    }
    record.closed = true;
    record.write(directory).map_err(|error| match error {
        MpsError::File { source, .. } => source,
        error => io::Error::other(error.to_string()),
    })?;
    for card in &to_close {
        nvml.set_compute_mode(address(*card), ComputeMode::Prohibited)?;
    }
    Ok(to_close)
}

const fn address(card: PciBusId) -> PciAddress {
    PciAddress { domain: card.domain(), bus: card.bus(), device: card.device() }
}

/// Whether a process listens on a socket. Waits for nobody, whatever containers have put there.
fn listens(path: &PathBuf) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let Ok(socket) = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else {
        return true;
    };
    let Ok(address) = SocketAddrUnix::new(path) else { return true };
    !matches!(
        rustix::net::connect(&socket, &address),
        Err(Errno::CONNREFUSED | Errno::NOENT | Errno::NOTDIR | Errno::NOTSOCK)
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_listens_as_long_as_its_process_does() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        assert!(!listens(&path));
        let listener = UnixListener::bind(&path).unwrap();
        // More than wait to be accepted: whoever connects now would wait.
        let waiting: Vec<_> = (0..5000).map(|_| listens(&path)).collect();
        assert!(waiting.iter().all(|listens| *listens));
        drop(listener);
        assert!(path.exists() && !listens(&path), "what the dead leave behind");
        fs::write(directory.path().join("file"), "").unwrap();
        assert!(!listens(&directory.path().join("file")));
    }
}
