//! Decides which of several instances of the plugin on one node writes ResourceSlices.
//!
//! During a rolling upgrade two instances run side by side and share the plugin directory. Two files there decide:
//!
//! - `publish.newest` names the last instance to become ready to publish. Each instance replaces the file (by a rename,
//!   so the last one wins regardless of clocks) with one kept locked while the instance runs. The content names the
//!   newest instance; the lock shows whether this instance still runs.
//! - `publish.lock` is held by the writing instance. An instance no longer the newest finishes its requests in flight
//!   and releases the lock, and the newest takes the lock. Two instances never hold the lock at once.
//!
//! When the newest instance ends, in whatever way, its lock is released, and an older running instance takes over.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

/// How often the holder checks for a newer instance, and a waiting instance for its turn. (A blocking lock would notice
/// at once, but a thread waiting in `flock` can't be cancelled.)
const GLANCE: Duration = Duration::from_millis(100);

/// Why the publish lock cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// A lock file can't be created, replaced or locked: the directory is missing, read-only or full.
    #[error("cannot {action} {}: {source}; the plugin directory must exist, be writable and have room", path.display())]
    File {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The two lock files of one plugin directory, as one instance sees them.
#[derive(Debug)]
pub struct PublishLock {
    newest: PathBuf,
    lock: PathBuf,
    instance: String,
    /// This instance's `publish.newest`, locked while the instance runs; `None` before the announcement.
    announced: Option<File>,
    held: Option<File>,
}

impl PublishLock {
    /// The lock in `directory`. `instance` identifies this instance in the file: its pod's UID.
    #[must_use]
    pub fn new(directory: &Path, instance: &str) -> Self {
        Self {
            newest: directory.join("publish.newest"),
            lock: directory.join("publish.lock"),
            instance: instance.to_owned(),
            announced: None,
            held: None,
        }
    }

    /// Whether this instance holds the lock and no newer instance runs, so writing is allowed.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.held.is_some() && self.is_newest()
    }

    /// Whether this instance holds the lock, superseded or not.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Whether `publish.newest` is still this instance's file.
    fn is_newest(&self) -> bool {
        let same = |file: &File| -> io::Result<bool> {
            let (ours, there) = (file.metadata()?, fs::metadata(&self.newest)?);
            Ok(ours.ino() == there.ino() && ours.dev() == there.dev())
        };
        self.announced.as_ref().is_some_and(|file| same(file).unwrap_or(false))
    }

    /// Announces this instance as the newest and waits until writing is allowed. Cancel safe.
    ///
    /// A superseded instance waits here until every newer one has ended.
    ///
    /// # Errors
    /// [`LockError::File`] when the directory cannot be used.
    pub async fn acquire(&mut self) -> Result<(), LockError> {
        while !self.try_acquire()? {
            tokio::time::sleep(GLANCE).await;
        }
        Ok(())
    }

    fn try_acquire(&mut self) -> Result<bool, LockError> {
        let known = self.announced.is_some() && (self.is_newest() || self.newest_lives()?);
        if !known {
            self.announce()?;
        }
        if self.held.is_none() && self.is_newest() {
            self.held = self.take_lock()?;
        }
        Ok(self.may_write())
    }

    /// Waits until this instance is superseded. Cancel safe.
    pub async fn superseded(&self) {
        while self.is_newest() {
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Releases the lock. Call this when none of this instance's requests is in flight any more.
    pub fn release(&mut self) {
        self.held = None;
    }

    fn announce(&mut self) -> Result<(), LockError> {
        let directory = self.newest.parent().unwrap_or_else(|| Path::new("."));
        let mut file = tempfile::Builder::new()
            .prefix(".publish.newest.")
            .tempfile_in(directory)
            .map_err(|source| self.failed("create a file beside", &self.newest, source))?;
        // Locked before the rename, so that nobody ever finds the file unlocked.
        file.as_file().lock().map_err(|source| self.failed("lock", &self.newest, source))?;
        // Only for people who look into the file: on a full disk an empty one works too.
        if let Err(error) = file.write_all(self.instance.as_bytes()) {
            tracing::debug!(%error, "cannot write this instance's name into {}", self.newest.display());
        }
        let file =
            file.persist(&self.newest).map_err(|error| self.failed("replace", &self.newest, error.error))?;
        self.announced = Some(file);
        Ok(())
    }

    /// Whether the newest instance still runs.
    fn newest_lives(&self) -> Result<bool, LockError> {
        let file = match File::open(&self.newest) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(self.failed("open", &self.newest, source)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(source)) => Err(self.failed("lock", &self.newest, source)),
        }
    }

    /// Takes the lock, unless another instance holds it.
    fn take_lock(&self) -> Result<Option<File>, LockError> {
        let open = File::options().create(true).truncate(false).write(true).open(&self.lock);
        let file = open.map_err(|source| self.failed("create", &self.lock, source))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(self.failed("lock", &self.lock, source)),
        }
    }

    fn failed(&self, action: &'static str, path: &Path, source: io::Error) -> LockError {
        LockError::File { action, path: path.to_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(500);

    #[tokio::test]
    async fn a_newer_instance_takes_over_and_an_older_one_comes_back_when_it_ends() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut old = PublishLock::new(directory.path(), "old");
        timeout(LONG, old.acquire()).await.expect("free").expect("usable");
        assert!(old.may_write());

        let mut new = PublishLock::new(directory.path(), "new");
        assert!(timeout(SHORT, new.acquire()).await.is_err(), "the old one has not let go");
        assert!(!old.may_write() && !new.may_write());
        timeout(LONG, old.superseded()).await.expect("noticed");
        old.release();
        timeout(LONG, new.acquire()).await.expect("free").expect("usable");
        assert!(new.may_write() && !old.may_write());

        assert!(timeout(SHORT, old.acquire()).await.is_err(), "the new one runs");
        assert!(new.may_write(), "waiting does not announce anybody");
        drop(new);
        timeout(LONG, old.acquire()).await.expect("free").expect("usable");
        assert!(old.may_write());
        assert_eq!(fs::read_to_string(directory.path().join("publish.newest")).expect("readable"), "old");
    }

    #[tokio::test]
    async fn an_instance_that_gave_up_waiting_never_gets_the_lock() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut old = PublishLock::new(directory.path(), "old");
        old.acquire().await.expect("usable");
        let mut middle = PublishLock::new(directory.path(), "middle");
        assert!(timeout(SHORT, middle.acquire()).await.is_err());
        let mut new = PublishLock::new(directory.path(), "new");
        assert!(timeout(SHORT, new.acquire()).await.is_err());
        old.release();
        timeout(LONG, new.acquire()).await.expect("free").expect("usable");
        assert!(new.may_write() && !middle.may_write() && !old.may_write());
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_written_is_an_error_that_says_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut lock = PublishLock::new(&directory.path().join("missing"), "x");
        let error = lock.acquire().await.expect_err("no directory").to_string();
        assert!(
            error.contains("missing/publish.newest")
                && error.contains("must exist, be writable and have room"),
            "{error}"
        );
    }
}
