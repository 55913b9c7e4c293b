//! Cards whose daemons died with mps-host. Told to end, mps-host closes them itself; killed at once it cannot, and a program that
//! is started again before the next one runs would find no daemon, and have a whole card without limits. The plugin notices
//! within milliseconds that it is gone, and does it in its place.

use std::collections::{BTreeMap, BTreeSet};
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
pub enum AbandonedError {
    /// A file, or what is written down of a daemon.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The driver refuses.
    #[error(transparent)]
    Driver(#[from] NvmlError),
    /// The driver does not say whether it is open.
    #[error("card {0} does not say its compute mode")]
    Unknown(PciBusId),
}

/// Daemons that are dead while no mps-host works in their directory. None begins either as long as this lives.
#[derive(Debug)]
pub struct Abandoned {
    daemons: Vec<(DaemonDirectory, Record)>,
    failed: Option<AbandonedError>,
    _lock: File,
}

impl Abandoned {
    /// Those in `directory`; `None` while mps-host is there, or never was. Blocks for files.
    ///
    /// # Errors
    /// [`AbandonedError::File`]
    pub fn find(directory: &Path) -> Result<Option<Self>, AbandonedError> {
        let lock = match File::open(directory.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            lock => lock?,
        };
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            locked => locked.map_err(io::Error::from)?,
        }
        let devices =
            fs::read_dir(directory)?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let (mut daemons, mut failed) = (Vec::new(), None);
        for device in devices {
            let directory = DaemonDirectory::new(directory, &device);
            match dead(&directory, &device) {
                Ok(record) => daemons.extend(record.map(|record| (directory, record))),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Ok(Some(Self { daemons, failed, _lock: lock }))
    }

    /// Their cards.
    #[must_use]
    pub fn cards(&self) -> BTreeSet<PciBusId> {
        self.daemons.iter().flat_map(|(_, record)| record.cards()).collect()
    }

    /// Lets nobody onto their cards that are open: compute mode PROHIBITED, written down as mps-host does it itself, so that the
    /// next one opens them again. `modes` are the cards' compute modes, as far as they are known. Gives the cards that were
    /// closed. Blocks.
    ///
    /// # Errors
    /// [`AbandonedError`] of the first daemon whose cards can't be closed; those of the others are.
    pub fn close(
        self,
        modes: &BTreeMap<PciBusId, Option<ComputeMode>>,
        nvml: &dyn Nvml,
    ) -> Result<Vec<PciBusId>, AbandonedError> {
        let (mut closed, mut failed) = (Vec::new(), self.failed);
        for (directory, record) in self.daemons {
            match close(&directory, record, modes, nvml) {
                Ok(cards) => closed.extend(cards),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(closed), Err)
    }
}

/// The record of a daemon that should be there and is not.
fn dead(directory: &DaemonDirectory, device: &DeviceUuid) -> Result<Option<Record>, AbandonedError> {
    if listens(&directory.pipe.join("control")) {
        return Ok(None);
    }
    Ok(Record::read(directory)?.filter(|record| record.device == *device && record.wanted))
}

fn close(
    directory: &DaemonDirectory,
    mut record: Record,
    modes: &BTreeMap<PciBusId, Option<ComputeMode>>,
    nvml: &dyn Nvml,
) -> Result<Vec<PciBusId>, AbandonedError> {
    let mut to_close = Vec::new();
    for (card, before) in record.modes() {
        if *modes.get(&card).ok_or(AbandonedError::Unknown(card))? == Some(ComputeMode::ExclusiveProcess) {
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
        let address = PciAddress { domain: card.domain(), bus: card.bus(), device: card.device() };
        nvml.set_compute_mode(address, ComputeMode::Prohibited)?;
    }
    Ok(to_close)
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
