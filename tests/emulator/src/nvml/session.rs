//! A process's session with its machine, between `nvmlInit` and `nvmlShutdown`.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use crate::cuda::machine;
use crate::failure::Failure;
use crate::machine::{Card, Machine};
use crate::state::generation::Generation;
use crate::state::{CardState, State, Store, StoreError};

/// A process's view of its machine.
#[derive(Debug)]
pub struct Session {
    /// The machine.
    pub machine: Machine,
    /// Its files.
    pub store: Store,
    generation: Generation,
    /// Cards and driver present at the opening. The session never learns of later ones, as in the real library.
    driver_installations: u64,
    insertions: Vec<u64>,
    snapshot: RwLock<Arc<Snapshot>>,
    opened: Instant,
    /// Milliseconds since `opened` at which the state's file was last read.
    looked: AtomicU64,
    /// Keeps the cards from being reset.
    _open: Option<File>,
}

/// The state at one moment.
#[derive(Debug)]
pub struct Snapshot {
    generation: u32,
    file: (u64, u64),
    /// The state.
    pub state: State,
}

/// How long a reader trusts the shared counter alone, ms. The counter is raised right after the file is replaced. A
/// writer killed between the two leaves the counter behind. Only a look at the file itself reveals this.
const TRUST: u64 = 200;

static SESSION: RwLock<Opened> = RwLock::new(Opened { users: 0, session: None });

struct Opened {
    users: usize,
    session: Option<Arc<Session>>,
}

/// Counts one more user and opens the machine for the first.
///
/// # Errors
/// [`Failure::DRIVER_NOT_LOADED`] when the library does not lie in an emulated machine.
pub fn open() -> Result<(), Failure> {
    let mut opened = SESSION.write().unwrap_or_else(PoisonError::into_inner);
    if opened.session.is_none() {
        let session = match root().map(|root| Store::new(&root)).filter(Store::exists) {
            Some(store) => Session::open(store),
            // In a container the library lies where containers have libraries, and the machine is mounted.
            None => Session::open(machine::find().map_err(|_| Failure::DRIVER_NOT_LOADED)?)
                .map(Session::in_container),
        }
        .map_err(|_| Failure::DRIVER_NOT_LOADED)?;
        opened.session = Some(Arc::new(session));
    }
    opened.users += 1;
    Ok(())
}

/// Counts one user less, and closes the machine after the last.
///
/// # Errors
/// [`Failure::UNINITIALIZED`] if nobody opened the machine.
pub fn close() -> Result<(), Failure> {
    let mut opened = SESSION.write().unwrap_or_else(PoisonError::into_inner);
    opened.users = opened.users.checked_sub(1).ok_or(Failure::UNINITIALIZED)?;
    if opened.users == 0 {
        opened.session = None;
    }
    Ok(())
}

/// The open machine.
///
/// # Errors
/// [`Failure::UNINITIALIZED`] if none is open.
pub fn current() -> Result<Arc<Session>, Failure> {
    let opened = SESSION.read().unwrap_or_else(PoisonError::into_inner);
    opened.session.clone().ok_or(Failure::UNINITIALIZED)
}

/// The machine's directory: the library lies in `DIR/lib`, whatever links lead to the library.
fn root() -> Option<PathBuf> {
    let mut information = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here = root as fn() -> Option<PathBuf> as *const libc::c_void;
    // SAFETY: any address may be asked about, and `information` is a valid place for the answer.
    let found = unsafe { libc::dladdr(here, &raw mut information) };
    if found == 0 || information.dli_fname.is_null() {
        return None;
    }
    // SAFETY: on success the loader's own string, valid as long as the library is loaded, as now: this code runs.
    let path = unsafe { CStr::from_ptr(information.dli_fname) };
    let library = std::fs::canonicalize(OsStr::from_bytes(path.to_bytes())).ok()?;
    Some(library.parent()?.parent()?.to_owned())
}

impl Session {
    /// Opens the machine in `store`.
    ///
    /// # Errors
    /// When its files cannot be read.
    pub fn open(store: Store) -> Result<Self, StoreError> {
        let mut machine = store.machine()?;
        crate::cuda::contexts::sweep(&store);
        let path = store.generation_path();
        let generation = Generation::open(&path).map_err(|source| StoreError::File { path, source })?;
        let snapshot = Snapshot::read(&store, generation.get())?;
        let cards = || machine.cards.iter().zip(&snapshot.state.cards);
        let empty = cards().filter(|(_, state)| state.unplugged).map(|(card, _)| card.index).collect();
        machine.empty_slots = empty;
        Ok(Session {
            _open: store.have_open()?,
            driver_installations: snapshot.state.driver_installations,
            insertions: snapshot.state.cards.iter().map(|card| card.insertions).collect(),
            machine,
            store,
            generation,
            snapshot: RwLock::new(Arc::new(snapshot)),
            opened: Instant::now(),
            looked: AtomicU64::new(0),
        })
    }

    /// The view from a container: only cards with granted device nodes. No other card is open here, and these count
    /// as open by their processes.
    fn in_container(mut self) -> Self {
        self._open = None;
        let absent = |card: &&Card| !Path::new("/dev").join(format!("nvidia{}", card.minor)).exists();
        let absent = self.machine.cards.iter().filter(absent).map(|card| card.index);
        self.machine.empty_slots.extend(absent);
        self
    }

    /// The state now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let generation = self.generation.get();
        let snapshot = self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone();
        if snapshot.generation == generation && !self.file_changed(&snapshot) {
            return snapshot;
        }
        // Writers replace the file before they raise the counter, so this reads a state at least as new. If the file is
        // unreadable, the previous state stays: a card does not vanish because a disk is full.
        let Ok(new) = Snapshot::read(&self.store, generation) else { return snapshot };
        let new = Arc::new(new);
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = new.clone();
        new
    }

    fn file_changed(&self, snapshot: &Snapshot) -> bool {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        let looked = self.looked.load(Ordering::Relaxed);
        if now.saturating_sub(looked) < TRUST {
            return false;
        }
        self.looked.store(now, Ordering::Relaxed);
        if !snapshot.state.contexts.is_empty() {
            crate::cuda::contexts::sweep(&self.store);
        }
        identity(&self.store) != snapshot.file
    }

    /// Whether the kernel module is still the one present when this session was opened.
    pub fn has_its_driver(&self, state: &State) -> bool {
        self.driver_installations == state.driver_installations
    }

    /// Whether the card with this index is still the one present when this session was opened.
    pub fn has(&self, index: u32, state: &CardState) -> bool {
        !state.unplugged && self.insertions.get(index as usize) == Some(&state.insertions)
    }

    /// How long ago the machine was made.
    pub fn age(&self) -> std::time::Duration {
        let made = std::fs::metadata(self.store.machine_path()).and_then(|metadata| metadata.modified());
        made.ok().and_then(|made| made.elapsed().ok()).unwrap_or_default()
    }

    /// Waits until the state differs from `seen`, at most for `limit`.
    pub fn wait(&self, seen: &Snapshot, limit: std::time::Duration) {
        self.generation.wait(seen.generation, limit.min(std::time::Duration::from_millis(TRUST)));
    }
}

/// Device and inode of the state's file: every write makes a new one.
fn identity(store: &Store) -> (u64, u64) {
    std::fs::metadata(store.state_path()).map_or((0, 0), |metadata| (metadata.dev(), metadata.ino()))
}

impl Snapshot {
    fn read(store: &Store, generation: u32) -> Result<Self, StoreError> {
        let file = identity(store);
        let mut state = store.state()?;
        crate::cuda::contexts::seen_from_here(store, &mut state);
        Ok(Snapshot { generation, file, state })
    }
}
