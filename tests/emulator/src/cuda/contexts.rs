//! Processes on cards, removed when their owner ends for any reason.
//!
//! A real driver notices the end of a process. Here the owner of processes locks a file of its own; the kernel releases
//! the lock when the owner dies, and the next process reading the state removes the entries left behind.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::fs::FlockOperation;

use crate::state::{Context, Process, ProcessKind, State, Store, StoreError};

/// The owner of processes on cards.
#[derive(Debug)]
pub struct Owner {
    store: Store,
    name: String,
    path: PathBuf,
    _lock: File,
}

impl Owner {
    /// A new one.
    ///
    /// # Errors
    /// When the machine's state cannot be written.
    pub fn new(store: &Store) -> Result<Self, StoreError> {
        let directory = store.contexts_path();
        let failed = |path: &PathBuf| {
            let path = path.clone();
            move |source| StoreError::File { path, source }
        };
        fs::create_dir_all(&directory).map_err(failed(&directory))?;
        let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
        let name = format!("{}-{}", std::process::id(), uuid.trim());
        let path = directory.join(&name);
        let lock = File::create_new(&path).map_err(failed(&path))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| failed(&path)(error.into()))?;
        sweep(store);
        Ok(Owner { store: store.clone(), name, path, _lock: lock })
    }

    /// Puts a process on a card, or changes its memory but not its load. `check` gets the state before the change.
    ///
    /// # Errors
    /// The error of `check`, or the state cannot be written.
    pub fn put<E: From<StoreError>>(
        &self,
        card: usize,
        process: Process,
        check: impl FnOnce(&State) -> Result<(), E>,
    ) -> Result<(), E> {
        self.store.update(|state| {
            check(state)?;
            let context = Context { card, pid: process.pid, kind: process.kind };
            let owned = state.contexts.entry(self.name.clone()).or_default();
            let is_new = !owned.contains(&context);
            if is_new {
                owned.push(context);
            }
            let process = Process { owner: number(&self.name), ..process };
            let processes = &mut state.cards[card].processes;
            let is_it = |other: &&mut Process| {
                (other.owner, other.pid, other.kind) == (process.owner, process.pid, process.kind)
            };
            match processes.iter_mut().find(|other| !is_new && is_it(other)) {
                Some(old) => *old = Process { busy_percent: old.busy_percent, ..process },
                None => processes.push(process),
            }
            Ok(())
        })
    }

    /// Lets a process keep a card busy for so much of the time, percent.
    ///
    /// # Errors
    /// When the state cannot be written.
    pub fn keep_busy(&self, context: Context, percent: u32) -> Result<(), StoreError> {
        self.store.update(|state| {
            let owner = number(&self.name);
            let processes = state.cards.get_mut(context.card).map(|card| &mut card.processes);
            for process in processes.into_iter().flatten() {
                if (process.owner, process.pid, process.kind) == (owner, context.pid, context.kind) {
                    process.busy_percent = percent;
                }
            }
            Ok(())
        })
    }

    /// Takes a process off a card.
    ///
    /// # Errors
    /// When the state cannot be written.
    pub fn remove(&self, card: usize, pid: u32, kind: ProcessKind) -> Result<(), StoreError> {
        self.store.update(|state| {
            let context = Context { card, pid, kind };
            if let Some(owned) = state.contexts.get_mut(&self.name) {
                owned.retain(|other| *other != context);
            }
            take_off(state, number(&self.name), context);
            Ok(())
        })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // After an error here, the next sweep does the same.
        let _: Result<(), StoreError> = self.store.update(|state| {
            end(state, &self.name);
            Ok(())
        });
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the processes of owners that have ended.
pub fn sweep(store: &Store) {
    let Ok(state) = store.state() else { return };
    let dead: Vec<&String> = state.contexts.keys().filter(|name| is_dead(store, name)).collect();
    if dead.is_empty() {
        return;
    }
    // A machine's directory without write access is cleaned by its owner.
    let _: Result<(), StoreError> = store.update(|state| {
        for name in &dead {
            end(state, name);
        }
        Ok(())
    });
    for name in dead {
        let _ = fs::remove_file(store.contexts_path().join(name));
    }
}

/// Gives processes in other process namespaces the ids by which this process sees them, as NVML does. `/proc/locks` names the holder
/// of an owner's lock. A process invisible from here keeps the id from its own namespace.
pub fn seen_from_here(store: &Store, state: &mut State) {
    if state.contexts.is_empty() {
        return;
    }
    let holders = holders(&fs::read_to_string("/proc/locks").unwrap_or_default());
    for name in state.contexts.keys() {
        let Some(own) = name.split_once('-').and_then(|(pid, _)| pid.parse::<u32>().ok()) else { continue };
        let Ok(file) = fs::metadata(store.contexts_path().join(name)) else { continue };
        let Some(seen) = holders.get(&file.ino()).filter(|seen| **seen != own) else { continue };
        let owner = number(name);
        let processes = state.cards.iter_mut().flat_map(|card| &mut card.processes);
        // An MPS server also owns its clients, whose ids come from the kernel.
        for process in processes.filter(|process| (process.owner, process.pid) == (owner, own)) {
            process.pid = *seen;
        }
    }
}

/// Process ids by inode of their exclusive locks: `1: FLOCK  ADVISORY  WRITE 710 fe:00:1247 0 EOF`. The kernel writes ids of the
/// process namespace of this `/proc`, and leaves out processes outside of the namespace.
fn holders(locks: &str) -> BTreeMap<u64, u32> {
    let holder = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, file, ..] = words.as_slice() else { return None };
        let inode = file.rsplit_once(':')?.1.parse().ok()?;
        Some((inode, pid.parse().ok().filter(|pid| *pid > 0)?))
    };
    locks.lines().filter_map(holder).collect()
}

fn is_dead(store: &Store, name: &str) -> bool {
    match File::open(store.contexts_path().join(name)) {
        Ok(file) => rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

fn end(state: &mut State, name: &str) {
    for context in state.contexts.remove(name).unwrap_or_default() {
        take_off(state, number(name), context);
    }
}

/// Number of an owner: FNV-1a of its name.
fn number(name: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

fn take_off(state: &mut State, owner: u64, context: Context) {
    let Some(card) = state.cards.get_mut(context.card) else { return };
    let is_it =
        |process: &Process| (process.owner, process.pid, process.kind) == (owner, context.pid, context.kind);
    let found = card.processes.iter().position(is_it);
    if let Some(position) = found {
        card.processes.remove(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Options, build};

    #[test]
    fn processes_of_two_containers_with_one_id_are_two() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = Store::new(directory.path());
        let options = Options { hardware: "t4".into(), ..Options::default() };
        store.create(&build::build(&options).expect("a T4")).expect("it is written");
        let (one, other) = (Owner::new(&store).expect("an owner"), Owner::new(&store).expect("an owner"));
        let put = |owner: &Owner, bytes| {
            let process = Process::new(1, bytes, ProcessKind::Compute);
            owner.put(0, process, |_| Ok::<(), StoreError>(())).expect("it is put there");
        };
        let held = || -> Vec<u64> {
            let processes = store.state().expect("a state").cards.remove(0).processes;
            processes.iter().map(|process| process.used_memory_bytes).collect()
        };
        put(&one, 10);
        put(&other, 20);
        put(&other, 30);
        assert_eq!(held(), [10, 30]);
        drop(one);
        assert_eq!(held(), [30]);
    }
}
