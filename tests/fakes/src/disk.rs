pub mod stable;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use tessera_journal::{FileSystem, Listed, LocalFileSystem};
use tessera_nvml::NvmlError;

use stable::Stable;

/// A file system counting its effects, and failing at a chosen one.
///
/// A test of a failure at each step is a loop over the number of that step, until a run ends before reaching it.
pub struct Disk {
    state: Mutex<State>,
    /// Outlives the disk's process.
    stable: Arc<Mutex<Stable>>,
}

#[derive(Default)]
struct State {
    fault: Option<Fault>,
    effects: usize,
    is_dead: bool,
    syncs: usize,
    directory_syncs: usize,
    /// Duration of a sync.
    pause: Duration,
    /// A blocked read.
    held_read: Option<HeldRead>,
}

struct HeldRead {
    file_name: &'static str,
    is_reached: Arc<AtomicBool>,
    opened: mpsc::Receiver<()>,
}

/// Blocks a reader after its read, until the gate is dropped.
pub struct Gate {
    is_reached: Arc<AtomicBool>,
    _open: mpsc::Sender<()>,
}

impl Gate {
    /// Whether a reader is blocked.
    pub fn is_reached(&self) -> bool {
        self.is_reached.load(Ordering::Relaxed)
    }
}

/// The fault to inject.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The process dies at the n-th effect: later ones have no effect.
    Die(usize, Moment),
    /// The n-th effect fails with an error, once.
    Fail(usize, io::ErrorKind),
    /// Every effect needing space fails.
    Full,
    /// Every change fails.
    ReadOnly,
}

/// The moment of death, relative to the fatal effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The effect did not happen.
    Before,
    /// A file was half written; for other effects like `Before`.
    Half,
    /// The effect happened, but the caller did not get the result.
    After,
}

impl Moment {
    pub const ALL: [Self; 3] = [Self::Before, Self::Half, Self::After];
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    Sync,
    Other,
}

enum Verdict {
    Go,
    Half,
    GoThenDie,
    Fail(io::Error),
}

impl Disk {
    /// `stable` is the data left by earlier processes, synced or not.
    pub fn new(fault: Option<Fault>, stable: Arc<Mutex<Stable>>) -> Self {
        Self { state: Mutex::new(State { fault, ..State::default() }), stable }
    }

    /// Whether the fault of [`Fault::Die`] or [`Fault::Fail`] has happened.
    pub fn is_reached(&self) -> bool {
        let state = self.state.lock().unwrap();
        match state.fault {
            Some(Fault::Die(..)) => state.is_dead,
            Some(Fault::Fail(number, _)) => state.effects >= number,
            _ => true,
        }
    }

    pub fn set(&self, fault: Option<Fault>) {
        let mut state = self.state.lock().unwrap();
        state.fault = fault;
        state.effects = 0;
        state.is_dead = false;
    }

    /// Sets the duration of each later sync.
    pub fn slow_syncs(&self, pause: Duration) {
        self.state.lock().unwrap().pause = pause;
    }

    /// The next reader of a file of this name reads the file and is then blocked until the gate is dropped.
    pub fn hold_read(&self, file_name: &'static str) -> Gate {
        let (open, opened) = mpsc::channel();
        let is_reached = Arc::<AtomicBool>::default();
        let held = HeldRead { file_name, is_reached: is_reached.clone(), opened };
        self.state.lock().unwrap().held_read = Some(held);
        Gate { is_reached, _open: open }
    }

    /// Numbers of syncs of files and of directories.
    pub fn syncs(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        (state.syncs, state.directory_syncs)
    }

    fn effect(&self, kind: Kind) -> Verdict {
        let mut state = self.state.lock().unwrap();
        if state.is_dead {
            return Verdict::Fail(dead());
        }
        state.effects += 1;
        match state.fault {
            Some(Fault::Die(number, moment)) if state.effects == number => {
                state.is_dead = true;
                match moment {
                    Moment::Half if kind == Kind::Create => Verdict::Half,
                    Moment::Before | Moment::Half => Verdict::Fail(dead()),
                    Moment::After => Verdict::GoThenDie,
                }
            }
            Some(Fault::Fail(number, error)) if state.effects == number => Verdict::Fail(error.into()),
            Some(Fault::Full) if kind == Kind::Create => Verdict::Fail(io::ErrorKind::StorageFull.into()),
            Some(Fault::ReadOnly) if kind != Kind::Sync => {
                Verdict::Fail(io::ErrorKind::ReadOnlyFilesystem.into())
            }
            _ => Verdict::Go,
        }
    }

    fn done<T>(&self, kind: Kind, effect: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.effect(kind) {
            Verdict::Go => effect(),
            Verdict::Half => Err(dead()),
            Verdict::GoThenDie => effect().and(Err(dead())),
            Verdict::Fail(error) => Err(error),
        }
    }

    /// An effect on a card, counted together with effects on the disk.
    pub fn card_effect<T>(&self, effect: impl FnOnce() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
        match self.effect(Kind::Other) {
            Verdict::Go => effect(),
            Verdict::GoThenDie => effect().and(Err(no_answer())),
            Verdict::Half | Verdict::Fail(_) => Err(no_answer()),
        }
    }

    /// An error if the process is dead; for read-only calls on cards.
    pub fn card_look(&self) -> Result<(), NvmlError> {
        self.alive().map_err(|_| no_answer())
    }

    fn alive(&self) -> io::Result<()> {
        if self.state.lock().unwrap().is_dead { Err(dead()) } else { Ok(()) }
    }
}

impl FileSystem for Disk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        // An existing directory needs no space.
        let kind = if path.is_dir() { Kind::Other } else { Kind::Create };
        self.done(kind, || LocalFileSystem.create_directory(path))
    }

    fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<File> {
        let create = |bytes: &[u8]| {
            let mut stable = self.stable.lock().unwrap();
            stable.create(path, bytes);
            LocalFileSystem.create(path, bytes)
        };
        match self.effect(Kind::Create) {
            Verdict::Go => create(bytes),
            Verdict::Half => create(&bytes[..bytes.len() / 2]).and(Err(dead())),
            Verdict::GoThenDie => create(bytes).and(Err(dead())),
            Verdict::Fail(error) => Err(error),
        }
    }

    fn sync(&self, _file: &File, path: &Path) -> io::Result<()> {
        // The machine under the test does not lose power: only the request for a sync counts.
        self.done(Kind::Sync, || {
            self.stable.lock().unwrap().sync(path);
            self.state.lock().unwrap().syncs += 1;
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.done(Kind::Other, || {
            let mut stable = self.stable.lock().unwrap();
            stable.rename(from, to);
            LocalFileSystem.rename(from, to)
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.done(Kind::Other, || {
            let mut stable = self.stable.lock().unwrap();
            stable.remove(path);
            LocalFileSystem.remove(path)
        })
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let pause = self.state.lock().unwrap().pause;
        thread::sleep(pause);
        self.done(Kind::Sync, || {
            self.stable.lock().unwrap().sync_directory(path);
            self.state.lock().unwrap().directory_syncs += 1;
            Ok(())
        })
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.alive()?;
        let content = LocalFileSystem.read(path);
        let is_held = |held: &mut HeldRead| path.ends_with(held.file_name);
        let held = self.state.lock().unwrap().held_read.take_if(is_held);
        if let Some(held) = held {
            held.is_reached.store(true, Ordering::Relaxed);
            // Returns when the gate is dropped.
            let _ = held.opened.recv();
        }
        content
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Listed>> {
        self.alive()?;
        LocalFileSystem.list(path)
    }
}

fn no_answer() -> NvmlError {
    NvmlError::Call { function: "nvmlAnything", code: 999, text: "Unknown Error".into() }
}

fn dead() -> io::Error {
    io::Error::other("the process is dead")
}
