use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::sync::oneshot;

use super::{FileSystem, JournalError};

/// Writes and removes files atomically and brings that to the disk, on a thread of its own. Changes that arrive while
/// others are being synced are synced together. What need not survive the machine doesn't wait in this queue
/// ([`write_unsynced`]).
#[derive(Debug)]
pub(super) struct Writer {
    changes: mpsc::Sender<Change>,
}

struct Change {
    path: PathBuf,
    /// The new content; `None` removes the file.
    content: Option<Vec<u8>>,
    done: oneshot::Sender<Result<(), JournalError>>,
}

/// Most changes that are made before the first of them is answered.
const LARGEST_GROUP: usize = 256;

impl Writer {
    pub(super) fn start(file_system: Arc<dyn FileSystem>) -> Result<Self, JournalError> {
        let (changes, queue) = mpsc::channel();
        thread::Builder::new()
            .name("journal".into())
            .spawn(move || {
                let mut group = Vec::new();
                while let Ok(change) = queue.recv() {
                    group.push(change);
                    group.extend(queue.try_iter().take(LARGEST_GROUP - 1));
                    write_synced(&*file_system, &mut group);
                }
            })
            .map_err(|error| JournalError::io("start the thread that writes", "the journal", error))?;
        Ok(Self { changes })
    }

    /// Replaces a file's content, or removes the file. On an error the file is as it was before, with the exception of a
    /// directory that could not be synced: then it is changed, and the change may not survive the machine.
    pub(super) async fn write(&self, path: PathBuf, content: Option<Vec<u8>>) -> Result<(), JournalError> {
        let (done, answer) = oneshot::channel();
        self.changes.send(Change { path, content, done }).map_err(|_| JournalError::WriterGone)?;
        answer.await.map_err(|_| JournalError::WriterGone)?
    }
}

/// The name under which a file's next content is written. There is one for each file, because a record is only written
/// under its lock: what a crash leaves is overwritten by the next write, or swept at the next start.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

/// Replaces a file's content, or removes the file, for everyone on this machine to see; a power failure may undo it. On an
/// error the file is as it was before. Blocks for some file operations.
pub(super) fn write_unsynced(
    file_system: &dyn FileSystem,
    path: &Path,
    content: Option<&[u8]>,
) -> Result<(), JournalError> {
    match content {
        Some(content) => {
            create(file_system, path, content)?;
            rename(file_system, path)
        }
        None => remove(file_system, path),
    }
}

fn write_synced(file_system: &dyn FileSystem, group: &mut Vec<Change>) {
    let create = |change: &Change| {
        let Some(content) = &change.content else { return Ok(None) };
        let file = create(file_system, &change.path, content)?;
        file_system.start_sync(&file);
        Ok(Some(file))
    };
    let created: Vec<Result<Option<File>, JournalError>> = group.iter().map(create).collect();
    let mut results: Vec<Result<(), JournalError>> = group
        .iter()
        .zip(created)
        .map(|(change, file)| put_in_place(file_system, &change.path, file?))
        .collect();

    let changed = group.iter().zip(&results).filter(|(_, result)| result.is_ok());
    let directories: BTreeSet<&Path> = changed.filter_map(|(change, _)| change.path.parent()).collect();
    for directory in directories {
        if let Err(error) = file_system.sync_directory(directory) {
            let error = JournalError::io("sync the directory", directory, error);
            for (change, result) in group.iter().zip(&mut results) {
                if change.path.parent() == Some(directory) {
                    *result = Err(error.clone());
                }
            }
        }
    }
    for (change, result) in group.drain(..).zip(results) {
        // Whoever asked may be gone: then nobody needs the answer.
        let _ = change.done.send(result);
    }
}

fn create(file_system: &dyn FileSystem, path: &Path, content: &[u8]) -> Result<File, JournalError> {
    let temporary = temporary(path);
    file_system.create(&temporary, content).map_err(|error| {
        // What was written of it takes the space that a full disk lacks.
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
