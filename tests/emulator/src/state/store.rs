//! The files of a machine.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::generation::Generation;
use super::{State, meter};
use crate::failure::Failure;
use crate::machine::Machine;

/// The file with a shared lock by every process with the cards open.
const CLIENTS: &str = "clients.lock";

/// Where a machine is kept: `DIR/state`.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

/// Why a machine's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no machine in the directory.
    #[error("{0} is not an emulated machine; make one with: gpu-emulator create {0} --hardware NAME")]
    NoMachine(PathBuf),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file not in the emulator's format.
    #[error("{path}: {source}; it was changed by hand or is of another version: create the machine anew")]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// The parser's error.
        source: serde_json::Error,
    },
}

impl StoreError {
    /// Whether the directory may be read but not written.
    pub fn is_permission(&self) -> bool {
        matches!(self, StoreError::File { source, .. }
            if matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem))
    }
}

/// NVML's error if the machine's files could not be read or changed.
impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        if error.is_permission() { Failure::NO_PERMISSION } else { Failure::UNKNOWN }
    }
}

impl Store {
    /// The store of the machine in `root`.
    pub fn new(root: &Path) -> Self {
        Store { directory: root.join("state") }
    }

    /// Directory of the machine.
    pub fn root(&self) -> &Path {
        self.directory.parent().unwrap_or(&self.directory)
    }

    /// Waits for the lock on the partitions of this card; dropping the file releases the lock.
    ///
    /// # Errors
    /// When the lock's file cannot be made or locked.
    pub fn turn(&self, card: u32) -> Result<File, StoreError> {
        let path = self.path(&format!("partitions-{card}.lock"));
        let lock = File::options().create(true).append(true).open(&path).map_err(at(&path))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|error| at(&path)(error.into()))?;
        Ok(lock)
    }

    /// Marks the machine's cards as open in this process, as long as the file is kept. `None` for machines made by an
    /// emulator without this mark.
    ///
    /// # Errors
    /// When the lock's file cannot be locked.
    pub fn have_open(&self) -> Result<Option<File>, StoreError> {
        let Some(lock) = self.clients()? else { return Ok(None) };
        let path = self.path(CLIENTS);
        rustix::fs::flock(&lock, FlockOperation::LockShared).map_err(|error| at(&path)(error.into()))?;
        Ok(Some(lock))
    }

    /// Whether any process has the machine's cards open, this one included.
    ///
    /// # Errors
    /// When the lock's file cannot be opened.
    pub fn is_open(&self) -> Result<bool, StoreError> {
        let Some(lock) = self.clients()? else { return Ok(false) };
        let is_locked = || rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err();
        // A newly forked child has its parent's files open until its exec.
        Ok((0..5).all(|_| {
            let is_locked = is_locked();
            if is_locked {
                std::thread::sleep(Duration::from_millis(20));
            }
            is_locked
        }))
    }

    fn clients(&self) -> Result<Option<File>, StoreError> {
        let path = self.path(CLIENTS);
        match File::open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&path)(error)),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// File of the shared counter.
    pub fn generation_path(&self) -> PathBuf {
        self.path("generation")
    }

    /// File of the machine.
    pub fn machine_path(&self) -> PathBuf {
        self.path("machine.json")
    }

    /// File of the state.
    pub fn state_path(&self) -> PathBuf {
        self.path("state.json")
    }

    /// Directory of the locks of processes' owners.
    pub fn contexts_path(&self) -> PathBuf {
        self.path("contexts")
    }

    /// Whether a machine is kept here.
    pub fn exists(&self) -> bool {
        self.path("machine.json").exists()
    }

    /// Writes a new machine and its first state.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn create(&self, machine: &Machine) -> Result<(), StoreError> {
        fs::create_dir_all(&self.directory).map_err(at(&self.directory))?;
        let generation = self.generation_path();
        fs::write(&generation, [0; 4]).map_err(at(&generation))?;
        for name in ["lock", CLIENTS] {
            let lock = self.path(name);
            File::create(&lock).map_err(at(&lock))?;
        }
        self.write("state.json", &State::new(machine.cards.len()))?;
        // Last, since its presence marks the machine as complete.
        self.write("machine.json", machine)
    }

    /// Replaces the machine. Processes with the machine already open keep their old view.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn replace_machine(&self, machine: &Machine) -> Result<(), StoreError> {
        self.write("machine.json", machine)
    }

    /// The machine.
    ///
    /// # Errors
    /// When there is none, or its file cannot be read.
    pub fn machine(&self) -> Result<Machine, StoreError> {
        if !self.exists() {
            return Err(StoreError::NoMachine(self.directory.parent().unwrap_or(&self.directory).to_owned()));
        }
        self.read("machine.json")
    }

    /// The state.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub fn state(&self) -> Result<State, StoreError> {
        self.read("state.json")
    }

    /// Changes the state atomically.
    ///
    /// # Errors
    /// The files cannot be locked, read or written, or the error of `change`; nothing is written then.
    pub fn update<T, E: From<StoreError>>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, E>,
    ) -> Result<T, E> {
        let path = self.path("lock");
        let lock = File::open(&path).map_err(at(&path))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|error| at(&path)(error.into()))?;
        let before = self.state()?;
        let mut state = before.clone();
        let answer = change(&mut state)?;
        if state != before {
            meter::advance(&before, &mut state, meter::now());
            self.write("state.json", &state)?;
            let generation = self.generation_path();
            Generation::advance(&generation).map_err(at(&generation))?;
        }
        Ok(answer)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, StoreError> {
        let path = self.path(name);
        let text = fs::read(&path).map_err(at(&path))?;
        serde_json::from_slice(&text).map_err(|source| StoreError::Malformed { path, source })
    }

    /// Replaces a file as a whole: readers get the old or the new one.
    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), StoreError> {
        let path = self.path(name);
        let mut text = serde_json::to_vec_pretty(value)
            .map_err(|source| StoreError::Malformed { path: path.clone(), source })?;
        text.push(b'\n');
        let new = self.path(&format!("{name}.new"));
        let write = || -> io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&new, &path)
        };
        write().map_err(at(&path))
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Options, build};

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = Store::new(directory.path());
        let options = Options { hardware: "t4".into(), ..Options::default() };
        store.create(&build::build(&options).expect("a T4")).expect("it is written");
        (directory, store)
    }

    #[test]
    fn updates_from_many_threads_are_all_kept() {
        let (_directory, store) = store();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        store
                            .update(|state| {
                                state.push_event(0, 8, 79, None);
                                Ok::<(), StoreError>(())
                            })
                            .expect("it is written");
                    }
                });
            }
        });
        assert_eq!(store.state().expect("a state").next_event, 40);
    }

    #[test]
    fn an_update_that_fails_or_changes_nothing_writes_nothing() {
        let (_directory, store) = store();
        let generation = Generation::open(&store.generation_path()).expect("the counter");
        let before = generation.get();
        let failed = store.update(|state| {
            state.push_event(0, 8, 79, None);
            Err::<(), _>(StoreError::NoMachine("x".into()))
        });
        assert!(failed.is_err());
        store.update(|_| Ok::<(), StoreError>(())).expect("nothing to write");
        assert_eq!(generation.get(), before);
        assert_eq!(store.state().expect("a state").next_event, 0);
    }

    #[test]
    fn a_directory_without_a_machine_says_what_to_do() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let error = Store::new(directory.path()).machine().expect_err("no machine there");
        assert!(error.to_string().contains("gpu-emulator create"), "{error}");
    }
}
