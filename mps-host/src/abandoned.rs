//! Closes cards whose daemons died with mps-host. An orderly terminated mps-host closes them itself, a killed one
//! can't: a program starting again before the next mps-host runs would find no daemon, and have a whole card without
//! limits. The plugin notices the end of mps-host within milliseconds, and closes the cards in its place. The plugin
//! also ends unwanted daemons, because mps-host may have been removed for good.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tessera_api::PciBusId;
use tessera_nvml::{ComputeMode, Nvml, NvmlError};

use super::compute_mode::{EXCLUSIVE_PROCESS, mode, mode_after, number};
use super::device::DeviceUuid;
use super::directory::{DaemonDirectory, LOCK};
use super::error::MpsError;
use super::record::Record;
use super::remove::remove_tree_now;
use super::shared_memory;

/// How long to wait for others who work on the same daemon, and how often to check.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// Why a card is left unchanged.
#[derive(Debug, thiserror::Error)]
pub enum AbandonedError {
    /// A file, or a daemon's record.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] NvmlError),
    /// The driver does not report the compute mode.
    #[error("card {0} does not say its compute mode")]
    Unknown(PciBusId),
}

/// Dead daemons in a directory without a running mps-host. Holds the directory's lock, so that none starts there
/// meanwhile.
#[derive(Debug)]
pub struct Abandoned {
    daemons: Vec<(DaemonDirectory, Record)>,
    failed: Option<AbandonedError>,
    _lock: File,
}

impl Abandoned {
    /// The dead daemons in `directory`; `None` while mps-host runs, or if there never was one. Blocks for files.
    ///
    /// # Errors
    /// [`AbandonedError::File`]
    pub fn find(directory: &Path) -> Result<Option<Self>, AbandonedError> {
        let Occupancy::Free(Some(lock)) = Occupancy::of(directory)? else { return Ok(None) };
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

    /// The cards of the daemons.
    #[must_use]
    pub fn cards(&self) -> BTreeSet<PciBusId> {
        self.daemons.iter().flat_map(|(_, record)| record.cards()).collect()
    }

    /// Closes the open cards of the daemons: sets compute mode PROHIBITED, recorded in the way of mps-host, so that the
    /// next one opens them again. Ends unwanted daemons, and restores their cards' modes. `modes` are the cards'
    /// compute modes, as far as known. Returns the closed cards. Blocks.
    ///
    /// # Errors
    /// The [`AbandonedError`] of the first daemon whose cards can't be closed; the cards of the others are closed.
    pub fn close(
        self,
        modes: &BTreeMap<PciBusId, Option<ComputeMode>>,
        nvml: &dyn Nvml,
    ) -> Result<Vec<PciBusId>, AbandonedError> {
        let (mut closed, mut failed) = (Vec::new(), self.failed);
        for (directory, record) in self.daemons {
            match close(&directory, &record.device, modes, nvml) {
                Ok(cards) => closed.extend(cards),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(closed), Err)
    }
}

/// The record of a dead daemon.
fn dead(directory: &DaemonDirectory, device: &DeviceUuid) -> Result<Option<Record>, AbandonedError> {
    if listens(&directory.pipe.join("control")) {
        return Ok(None);
    }
    Ok(Record::read(directory)?.filter(|record| record.device == *device))
}

/// Removes the remains of a daemon killed with its mps-host, and restores its cards, if no mps-host runs to do so: none
/// may ever come back. Returns whether nothing is left of the daemon. `false` while mps-host works in `directory`,
/// while the daemon runs, and if there is no record of it although `card` is in a daemon's compute mode. `owner` is the
/// daemon's owner as given to mps-host. Blocks.
///
/// # Errors
/// [`AbandonedError`]; can be tried again.
pub fn end_abandoned(
    directory: &Path,
    device: &DeviceUuid,
    owner: Option<&str>,
    card: PciBusId,
    nvml: &dyn Nvml,
) -> Result<bool, AbandonedError> {
    let Occupancy::Free(_lock) = Occupancy::of(directory)? else { return Ok(false) };
    let places = DaemonDirectory::new(directory, device);
    let Occupancy::Free(_work) = Occupancy::of_daemon(&places)? else { return Ok(false) };
    if listens(&places.pipe.join("control")) {
        return Ok(false);
    }
    match Record::read(&places)?.filter(|record| record.device == *device) {
        // Another claim's daemon: this claim's has been ended before.
        Some(record) if record.owner.as_deref() != owner => Ok(true),
        Some(record) => {
            end(&places, record, nvml)?;
            tracing::info!(%device, "mps-host is not there: what was left of an MPS daemon is taken away in its place");
            Ok(true)
        }
        None if device.is_partition() => Ok(true),
        // Its mps-host may work in another directory, or its directory may be lost.
        None => {
            let mode = nvml.card(card)?.compute_mode?;
            Ok(!matches!(mode, Some(ComputeMode::ExclusiveProcess | ComputeMode::Prohibited)))
        }
    }
}

/// Whether a directory is in use.
enum Occupancy {
    /// The directory is in use.
    Occupied,
    /// The directory is free, and stays so while the lock is held. No lock means a directory never used before.
    Free(Option<File>),
}

impl Occupancy {
    /// Whether an mps-host works in a directory. Several threads and instances of the plugin may find the directory
    /// free at once.
    fn of(directory: &Path) -> io::Result<Self> {
        Self::lock(&directory.join(LOCK), FlockOperation::NonBlockingLockShared)
    }

    /// Whether another thread or instance of the plugin works on a daemon, as can happen because a claim's own daemon
    /// serves several cards. Waits a moment for the other to end.
    fn of_daemon(directory: &DaemonDirectory) -> io::Result<Self> {
        let until = Instant::now() + PATIENCE;
        loop {
            match Self::lock(&directory.root, FlockOperation::NonBlockingLockExclusive)? {
                Self::Occupied if Instant::now() < until => std::thread::sleep(LOOK),
                occupancy => return Ok(occupancy),
            }
        }
    }

    fn lock(path: &Path, operation: FlockOperation) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Self::Free(None)),
            file => File::from(file?),
        };
        match rustix::fs::flock(&file, operation) {
            Err(Errno::WOULDBLOCK) => Ok(Self::Occupied),
            locked => Ok(locked.map(|()| Self::Free(Some(file)))?),
        }
    }
}

fn close(
    directory: &DaemonDirectory,
    device: &DeviceUuid,
    modes: &BTreeMap<PciBusId, Option<ComputeMode>>,
    nvml: &dyn Nvml,
) -> Result<Vec<PciBusId>, AbandonedError> {
    let Occupancy::Free(Some(_work)) = Occupancy::of_daemon(directory)? else { return Ok(Vec::new()) };
    let Some(mut record) = dead(directory, device)? else { return Ok(Vec::new()) };
    if let Some(card) = record.cards().find(|card| !modes.contains_key(card)) {
        return Err(AbandonedError::Unknown(card));
    }
    if !record.wanted {
        end(directory, record, nvml)?;
        return Ok(Vec::new());
    }
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
    record.write(directory).map_err(file_error)?;
    for card in &to_close {
        nvml.set_compute_mode(*card, ComputeMode::Prohibited)?;
    }
    Ok(to_close)
}

/// Ends a dead daemon. The record is removed after the cards were restored: until then this can be repeated, here or
/// by mps-host.
fn end(directory: &DaemonDirectory, mut record: Record, nvml: &dyn Nvml) -> Result<(), AbandonedError> {
    record.wanted = false;
    if let Err(error) = record.write(directory) {
        // For example, the disk is full. Only a crash right now would bring the daemon back.
        tracing::warn!(%error, "cannot write down that a daemon is to end; ending it all the same");
    }
    let closed = record.closed;
    for (card, before) in record.modes() {
        let now = nvml.card(card)?.compute_mode?.and_then(number);
        if let Some(after) = now.and_then(|now| mode_after(*before, closed, now)) {
            nvml.set_compute_mode(card, mode(after))?;
        }
    }
    match fs::remove_file(&directory.record) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    // Without its record the directory is harmless, and the next mps-host removes it.
    let removed = shared_memory::remove(&directory.shm).map_err(file_error);
    if let Err(error) = removed.and_then(|()| remove_tree_now(&directory.root)) {
        tracing::warn!(%error, path = %directory.root.display(), "cannot remove the directory of a dead MPS daemon");
    }
    Ok(())
}

fn file_error(error: MpsError) -> io::Error {
    match error {
        MpsError::File { source, .. } => source,
        error => io::Error::other(error.to_string()),
    }
}

/// Whether a process listens on a socket. Never waits, whatever containers have put there.
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
        // Fill the backlog: further connections would have to wait.
        let waiting: Vec<_> = (0..5000).map(|_| listens(&path)).collect();
        assert!(waiting.iter().all(|listens| *listens));
        drop(listener);
        assert!(path.exists() && !listens(&path), "what the dead leave behind");
        fs::write(directory.path().join("file"), "").unwrap();
        assert!(!listens(&directory.path().join("file")));
    }
}
