use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::sync::oneshot;

use super::{FileSystem, JournalError};

/// What a change must survive before it is said to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The death of the machine: synced to the disk. For intents and for whatever outlives a boot.
    Machine,
    /// The death of this process only. Enough for what another boot would not believe anyway.
    Process,
}

/// Writes and removes files atomically, on a thread of its own. Changes that arrive while others are being synced are
/// synced together.
#[derive(Debug)]
pub(super) struct Writer {
    changes: mpsc::Sender<Change>,
}

struct Change {
    path: PathBuf,
    /// The new content; `None` removes the file.
    content: Option<Vec<u8>>,
    durability: Durability,
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
                    write(&*file_system, &mut group);
                }
            })
            .map_err(|error| JournalError::io("start the thread that writes", "the journal", error))?;
        Ok(Self { changes })
    }

    /// Replaces a file's content, or removes the file. On an error the file is as it was before, with the exception of a
    /// directory that could not be synced: then it is changed, and the change may not survive the machine.
    pub(super) async fn write(
        &self,
        path: PathBuf,
        content: Option<Vec<u8>>,
        durability: Durability,
    ) -> Result<(), JournalError> {
        let (done, answer) = oneshot::channel();
        self.changes
            .send(Change { path, content, durability, done })
            .map_err(|_| JournalError::WriterGone)?;
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

fn write(file_system: &dyn FileSystem, group: &mut Vec<Change>) {
    let created: Vec<Result<Option<File>, JournalError>> =
        group.iter().map(|change| create(file_system, change)).collect();
    let mut results: Vec<Result<(), JournalError>> =
        group.iter().zip(created).map(|(change, file)| put_in_place(file_system, change, file?)).collect();

    let directories: BTreeSet<&Path> = group
        .iter()
        .zip(&results)
        .filter(|(change, result)| change.durability == Durability::Machine && result.is_ok())
        .filter_map(|(change, _)| change.path.parent())
        .collect();
    for directory in directories {
        if let Err(error) = file_system.sync_directory(directory) {
            let error = JournalError::io("sync the directory", directory, error);
            for (change, result) in group.iter().zip(&mut results) {
                if change.durability == Durability::Machine && change.path.parent() == Some(directory) {
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

fn create(file_system: &dyn FileSystem, change: &Change) -> Result<Option<File>, JournalError> {
    let Some(content) = &change.content else { return Ok(None) };
    let temporary = temporary(&change.path);
    file_system.create(&temporary, content).map(Some).map_err(|error| {
        // What was written of it takes the space that a full disk lacks.
        let _ = file_system.remove(&temporary);
        JournalError::io("write", &change.path, error)
    })
}

fn put_in_place(
    file_system: &dyn FileSystem,
    change: &Change,
    file: Option<File>,
) -> Result<(), JournalError> {
    let Some(file) = file else {
        return match file_system.remove(&change.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(JournalError::io("remove", &change.path, error))
            }
            _ => Ok(()),
        };
    };
    let temporary = temporary(&change.path);
    let synced = match change.durability {
        Durability::Machine => file_system.sync(&file, &temporary),
        Durability::Process => Ok(()),
    };
    synced.and_then(|()| file_system.rename(&temporary, &change.path)).map_err(|error| {
        let _ = file_system.remove(&temporary);
        JournalError::io("write", &change.path, error)
    })
}
