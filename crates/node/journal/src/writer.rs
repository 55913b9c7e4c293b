use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::sync::oneshot;

use crate::error::JournalError;
use crate::file_system::{FileSystem, replace_by};

/// Writes and removes files atomically and syncs them to the disk, on a thread of its own. Changes arriving while
/// others are being synced are synced together. Changes with no need to survive a power failure bypass this queue
/// ([`write_unsynced`]).
#[derive(Debug)]
pub(super) struct Writer {
    orders: mpsc::Sender<Order>,
}

/// Changes answered together.
struct Order {
    changes: Vec<Change>,
    done: oneshot::Sender<Result<(), JournalError>>,
}

/// The next content of one file.
pub(super) struct Change {
    pub path: PathBuf,
    /// `None` removes the file.
    pub content: Option<Vec<u8>>,
}

/// Largest number of orders carried out before the first answer.
const LARGEST_GROUP: usize = 256;

impl Writer {
    pub(super) fn start(file_system: Arc<dyn FileSystem>) -> Result<Self, JournalError> {
        let (orders, queue) = mpsc::channel();
        thread::Builder::new()
            .name("journal".into())
            .spawn(move || {
                let mut group = Vec::new();
                while let Ok(order) = queue.recv() {
                    group.push(order);
                    group.extend(queue.try_iter().take(LARGEST_GROUP - 1));
                    write_synced(&*file_system, &mut group);
                }
            })
            .map_err(|error| JournalError::io("start the thread that writes", "the journal", error))?;
        Ok(Self { orders })
    }

    /// Replaces or removes files, with one sync for all of them. On an error, the file named by the error is unchanged,
    /// and the others may be changed. The exception is a directory whose sync failed: then the file is
    /// changed, and the change may not survive a power failure.
    pub(super) async fn write(&self, changes: Vec<Change>) -> Result<(), JournalError> {
        let (done, answer) = oneshot::channel();
        self.orders.send(Order { changes, done }).map_err(|_| JournalError::WriterGone)?;
        answer.await.map_err(|_| JournalError::WriterGone)?
    }
}

/// The temporary name for a file's next content. One per file, because a record is only written under its lock: a file
/// left by a crash is overwritten by the next write, or removed at the next start.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

/// Replaces a file's content, or removes the file, visibly for every process of this machine. A power failure may undo
/// the change. On an error the file is unchanged. Blocks for some file operations.
pub(super) fn write_unsynced(
    file_system: &dyn FileSystem,
    path: &Path,
    content: Option<&[u8]>,
) -> Result<(), JournalError> {
    match content {
        Some(content) => replace_by(file_system, &temporary(path), path, content)
            .map_err(|error| JournalError::io("write", path, error)),
        None => remove(file_system, path),
    }
}

fn write_synced(file_system: &dyn FileSystem, group: &mut Vec<Order>) {
    let changes: Vec<&Change> = group.iter().flat_map(|order| &order.changes).collect();
    let create = |change: &&Change| {
        let Some(content) = &change.content else { return Ok(None) };
        let file = create(file_system, &change.path, content)?;
        file_system.start_sync(&file);
        Ok(Some(file))
    };
    let created: Vec<Result<Option<File>, JournalError>> = changes.iter().map(create).collect();
    let mut results: Vec<Result<(), JournalError>> = changes
        .iter()
        .zip(created)
        .map(|(change, file)| put_in_place(file_system, &change.path, file?))
        .collect();

    let changed = changes.iter().zip(&results).filter(|(_, result)| result.is_ok());
    let directories: BTreeSet<&Path> = changed.filter_map(|(change, _)| change.path.parent()).collect();
    for directory in directories {
        if let Err(error) = file_system.sync_directory(directory) {
            let error = JournalError::io("sync the directory", directory, error);
            for (change, result) in changes.iter().zip(&mut results) {
                if change.path.parent() == Some(directory) {
                    *result = Err(error.clone());
                }
            }
        }
    }
    let mut results = results.into_iter();
    for order in group.drain(..) {
        let of_order: Vec<_> = results.by_ref().take(order.changes.len()).collect();
        // Nobody may be waiting for the answer any more.
        let _ = order.done.send(of_order.into_iter().collect());
    }
}

fn create(file_system: &dyn FileSystem, path: &Path, content: &[u8]) -> Result<File, JournalError> {
    let temporary = temporary(path);
    file_system.create(&temporary, content).map_err(|error| {
        // Free the space of the temporary file: the disk may be full.
        let _ = file_system.remove(&temporary);
        JournalError::io("write", path, error)
    })
}

fn put_in_place(file_system: &dyn FileSystem, path: &Path, file: Option<File>) -> Result<(), JournalError> {
    let Some(file) = file else { return remove(file_system, path) };
    let temporary = temporary(path);
    file_system.sync(&file, &temporary).map_err(|error| {
        let _ = file_system.remove(&temporary);
        JournalError::io("write", path, error)
    })?;
    rename(file_system, path)
}

fn rename(file_system: &dyn FileSystem, path: &Path) -> Result<(), JournalError> {
    let temporary = temporary(path);
    file_system.rename(&temporary, path).map_err(|error| {
        let _ = file_system.remove(&temporary);
        JournalError::io("write", path, error)
    })
}

fn remove(file_system: &dyn FileSystem, path: &Path) -> Result<(), JournalError> {
    match file_system.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(JournalError::io("remove", path, error))
        }
        _ => Ok(()),
    }
}
