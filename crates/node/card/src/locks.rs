use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use sha2::{Digest as _, Sha256};
use tessera_api::PciBusId;
use tokio::sync::OwnedMutexGuard;

use tessera_journal::hint;

use crate::lock_watch::{LockState, LockWatch, Watched};

/// A lock file could not be opened or locked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}{}", hint(.source))]
pub struct LockError {
    /// The attempted action, as a verb.
    action: &'static str,
    /// The file.
    path: PathBuf,
    /// The operating system's error.
    source: Arc<io::Error>,
}

/// Locks of claims and cards, against other tasks of this process and against other instances of the plugin on the
/// node. Claim locks belong to the driver; card locks to the node, so that two installations with different driver
/// names exclude each other too.
///
/// Between instances, a lock is one byte of a file, at an offset hashed from the locked object (an open file
/// description lock, fcntl(2)). The system releases the lock when its holder dies in any way, a lock never needs space
/// on the disk, and nothing needs to be cleaned up. Two different objects share a byte with a probability of 2^-62, and
/// then they only wait for each other.
pub struct Locks {
    claims: PathBuf,
    cards_of_node: PathBuf,
    cards: Mutex<BTreeMap<PciBusId, Arc<tokio::sync::Mutex<()>>>>,
    watch: LockWatch,
}

/// A lock against other instances; released when dropped.
#[must_use]
pub struct FileLock {
    description: File,
    byte: libc::flock,
}

/// The lock of a card; released when dropped.
#[must_use]
pub struct CardLock {
    // Dropped first: the next task of this process then finds the file lock free.
    _instances: FileLock,
    _process: OwnedMutexGuard<()>,
    _watched: Watched,
}

/// Locks of cards, held while any copy exists: by the task working on a claim, and by each thread in a driver call for
/// it, which goes on when the task is dropped.
pub type CardLocks = Arc<Vec<CardLock>>;

/// Pauses between two attempts at a lock held by another instance. There is another instance only during an upgrade.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl LockError {
    fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self { action, path: path.to_owned(), source: Arc::new(source) }
    }
}

impl Locks {
    /// Opens the lock files, creating missing ones: `claims` is one per driver, `cards_of_node` one for all drivers of
    /// the node.
    ///
    /// # Errors
    /// [`LockError`]
    pub fn open(claims: PathBuf, cards_of_node: PathBuf) -> Result<Self, LockError> {
        open(&claims)?;
        open(&cards_of_node)?;
        Ok(Self { claims, cards_of_node, cards: Mutex::default(), watch: LockWatch::default() })
    }

    /// Waits for a claim's lock. Within this process, work on one claim is sequential already.
    ///
    /// # Errors
    /// [`LockError`]
    pub async fn claim(&self, uid: &str) -> Result<FileLock, LockError> {
        wait(&self.claims, &claim_key(uid)).await
    }

    /// A claim's lock; `None` while held elsewhere.
    ///
    /// # Errors
    /// [`LockError`]
    pub fn try_claim(&self, uid: &str) -> Result<Option<FileLock>, LockError> {
        try_lock(&self.claims, &claim_key(uid))
    }

    /// Waits for the locks of some cards. Waiters for one card are served in order. A task in need of several cards
    /// waits for one at a time and holds none meanwhile, so no card is idle because of another.
    ///
    /// # Errors
    /// [`LockError`]
    pub async fn cards(&self, cards: &BTreeSet<PciBusId>) -> Result<Vec<CardLock>, LockError> {
        let mut next = cards.first().copied();
        while let Some(first) = next {
            let awaited = self.card(first).await?;
            let others: BTreeSet<PciBusId> = cards.iter().copied().filter(|card| *card != first).collect();
            match self.try_all(&others)? {
                Ok(mut locks) => {
                    locks.push(awaited);
                    return Ok(locks);
                }
                Err(taken) => next = Some(taken),
            }
            drop(awaited);
            tokio::task::yield_now().await;
        }
        Ok(Vec::new())
    }

    /// The locks of some cards; `None` while one of them is taken.
    ///
    /// # Errors
    /// [`LockError`]
    pub fn try_cards(&self, cards: &BTreeSet<PciBusId>) -> Result<Option<Vec<CardLock>>, LockError> {
        Ok(self.try_all(cards)?.ok())
    }

    /// Cards locked or awaited by this process.
    #[must_use]
    pub fn states(&self) -> Vec<LockState> {
        self.watch.states()
    }

    async fn card(&self, card: PciBusId) -> Result<CardLock, LockError> {
        let waits = self.watch.add(card, false);
        let process = self.mutex(card).lock_owned().await;
        let instances = wait(&self.cards_of_node, &card_key(card)).await?;
        drop(waits);
        Ok(CardLock { _instances: instances, _process: process, _watched: self.watch.add(card, true) })
    }

    /// All of them at once, or the first unavailable card.
    fn try_all(&self, cards: &BTreeSet<PciBusId>) -> Result<Result<Vec<CardLock>, PciBusId>, LockError> {
        let mut locks = Vec::with_capacity(cards.len());
        for card in cards {
            let Ok(process) = self.mutex(*card).try_lock_owned() else { return Ok(Err(*card)) };
            let Some(instances) = try_lock(&self.cards_of_node, &card_key(*card))? else {
                return Ok(Err(*card));
            };
            let watched = self.watch.add(*card, true);
            locks.push(CardLock { _instances: instances, _process: process, _watched: watched });
        }
        Ok(Ok(locks))
    }

    fn mutex(&self, card: PciBusId) -> Arc<tokio::sync::Mutex<()>> {
        let mut known = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(card).or_default().clone()
    }
}

async fn wait(path: &Path, key: &str) -> Result<FileLock, LockError> {
    let mut pause = SHORTEST_PAUSE;
    loop {
        if let Some(lock) = try_lock(path, key)? {
            return Ok(lock);
        }
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing is not enough: a child process, just forked and still without its program, has the description open
        // too.
        let unlock = libc::flock { l_type: libc::F_UNLCK as libc::c_short, ..self.byte };
        if let Err(error) = fcntl(&self.description, FcntlArg::F_OFD_SETLK(&unlock)) {
            tracing::warn!(%error, "cannot release a file lock; closing its file does");
        }
    }
}

fn card_key(card: PciBusId) -> String {
    format!("card {card}")
}

fn claim_key(uid: &str) -> String {
    format!("claim {uid}")
}

fn open(path: &Path) -> Result<File, LockError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let opened = match (options.open(path), path.parent()) {
        (Err(error), Some(directory)) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(directory).and_then(|()| options.open(path))
        }
        (opened, _) => opened,
    };
    opened.map_err(|error| LockError::new("open the lock file", path, error))
}

fn try_lock(path: &Path, key: &str) -> Result<Option<FileLock>, LockError> {
    // Every lock has its own open file description, so that tasks of one process exclude each other too.
    let description = open(path)?;
    let byte = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset(key),
        l_len: 1,
        l_pid: 0,
    };
    match fcntl(&description, FcntlArg::F_OFD_SETLK(&byte)) {
        Ok(_) => Ok(Some(FileLock { description, byte })),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(None),
        Err(error) => Err(LockError::new("lock a part of", path, io::Error::from(error))),
    }
}

fn offset(key: &str) -> i64 {
    let digest = Sha256::digest(key);
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    (u64::from_le_bytes(bytes) >> 2).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_in(directory: &tempfile::TempDir) -> Locks {
        Locks::open(directory.path().join("claims"), directory.path().join("cdi/cards")).unwrap()
    }

    fn cards(addresses: &[&str]) -> BTreeSet<PciBusId> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[tokio::test]
    async fn two_instances_exclude_each_other_claim_by_claim() {
        let directory = tempfile::tempdir().unwrap();
        let one = open_in(&directory);
        let other = open_in(&directory);
        let held = one.claim("a").await.unwrap();
        assert!(other.try_claim("a").unwrap().is_none());
        assert!(one.try_claim("a").unwrap().is_none());
        assert!(other.try_claim("b").unwrap().is_some());
        drop(held);
        assert!(other.try_claim("a").unwrap().is_some());
    }

    #[tokio::test]
    async fn waiting_ends_when_the_other_instance_lets_go() {
        let directory = tempfile::tempdir().unwrap();
        let one = open_in(&directory);
        let other = Arc::new(open_in(&directory));
        let card = cards(&["0000:3b:00.0"]);
        let held = one.cards(&card).await.unwrap();
        let waiting = tokio::spawn({
            let other = other.clone();
            async move { other.cards(&card).await.map(|locks| locks.len()) }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        assert!(one.states().iter().map(|state| state.is_held).eq([true]));
        assert!(other.states().iter().map(|state| state.is_held).eq([false]));
        // Another card is free at once.
        assert_eq!(other.cards(&cards(&["0000:5e:00.0"])).await.unwrap().len(), 1);
        drop(held);
        assert_eq!(waiting.await.unwrap().unwrap(), 1);
        assert!(one.states().is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn overlapping_sets_never_wait_for_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let locks = Arc::new(open_in(&directory));
        let sets = [
            ["0000:01:00.0", "0000:02:00.0"],
            ["0000:02:00.0", "0000:03:00.0"],
            ["0000:03:00.0", "0000:01:00.0"],
        ];
        let tasks: Vec<_> = (0..60)
            .map(|number| {
                let locks = locks.clone();
                tokio::spawn(async move {
                    let held = locks.cards(&cards(&sets[number % sets.len()])).await.unwrap();
                    tokio::task::yield_now().await;
                    held.len()
                })
            })
            .collect();
        for task in tasks {
            let held = tokio::time::timeout(Duration::from_secs(20), task).await.expect("a deadlock");
            assert_eq!(held.unwrap(), 2);
        }
    }
}
