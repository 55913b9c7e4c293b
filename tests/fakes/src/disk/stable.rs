use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a loss of power leaves of the files that a plugin wrote.
///
/// A file's content is on the disk once it was synced, the names in a directory once that was. Everything else may be
/// there or not: which is the file system's own affair.
#[derive(Default)]
pub struct Stable {
    names: BTreeMap<PathBuf, Name>,
}

/// What a loss of power does to what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Names are as they were when their directory was last synced: what was made or renamed since is not there, and what
    /// was removed or replaced is there again. No name is there before its file's content, as on btrfs, and on ext4 for
    /// files that replace others.
    Names,
    /// Names are as they were last, and files without their content are empty.
    Content,
    /// As [`Loss::Content`], but files have their length, and zeros in the place of their content.
    Zeros,
}

/// A name that was changed. One that was not is on the disk, with its content.
struct Name {
    now: Option<Arc<Content>>,
    on_disk: Option<Arc<Content>>,
}

struct Content {
    bytes: Vec<u8>,
    is_synced: AtomicBool,
}

impl Stable {
    fn name(&mut self, path: &Path) -> &mut Name {
        self.names.entry(path.to_owned()).or_insert_with(|| {
            let content = |bytes| Arc::new(Content { bytes, is_synced: AtomicBool::new(true) });
            let now = fs::read(path).ok().map(content);
            Name { on_disk: now.clone(), now }
        })
    }

    /// Before a file is written anew.
    pub fn create(&mut self, path: &Path, bytes: &[u8]) {
        let name = self.name(path);
        let content = Arc::new(Content { bytes: bytes.to_owned(), is_synced: AtomicBool::new(false) });
        // A file that is there is written over, whichever names it has.
        let is_same = |(one, other): (&Arc<Content>, &Arc<Content>)| Arc::ptr_eq(one, other);
        if name.now.as_ref().zip(name.on_disk.as_ref()).is_some_and(is_same) {
            name.on_disk = Some(content.clone());
        }
        name.now = Some(content);
    }

    /// Before a file gets another name.
    pub fn rename(&mut self, from: &Path, to: &Path) {
        let content = self.name(from).now.clone();
        self.name(to).now = content;
        self.name(from).now = None;
    }

    /// Before a file is removed.
    pub fn remove(&mut self, path: &Path) {
        self.name(path).now = None;
    }

    /// A file's content was synced.
    pub fn sync(&mut self, path: &Path) {
        if let Some(content) = &self.name(path).now {
            content.is_synced.store(true, Ordering::Relaxed);
        }
    }

    /// The names in a directory were synced.
    pub fn sync_directory(&mut self, directory: &Path) {
        for (_, name) in self.names.iter_mut().filter(|(path, _)| path.parent() == Some(directory)) {
            if name.now.as_ref().is_none_or(|content| content.is_synced.load(Ordering::Relaxed)) {
                name.on_disk.clone_from(&name.now);
            }
        }
    }

    /// What is below a directory is not on a disk: a loss of power leaves it to whoever clears memory.
    pub fn forget(&mut self, directory: &Path) {
        self.names.retain(|path, _| !path.starts_with(directory));
    }

    /// Leaves the files as the loss does.
    pub fn lose_power(&mut self, loss: Loss) {
        for (path, name) in std::mem::take(&mut self.names) {
            let left = if loss == Loss::Names { name.on_disk } else { name.now };
            match left {
                Some(content) if content.is_synced.load(Ordering::Relaxed) => {
                    fs::write(path, &content.bytes).unwrap();
                }
                Some(content) if loss == Loss::Zeros => {
                    fs::write(path, vec![0; content.bytes.len()]).unwrap()
                }
                Some(_) => fs::write(path, "").unwrap(),
                None => match fs::remove_file(path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
                    _ => {}
                },
            }
        }
    }
}
