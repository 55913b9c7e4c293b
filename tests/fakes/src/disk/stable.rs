use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The files of a plugin after a power failure.
///
/// A file's content is on the disk once the file was synced, and the names in a directory once the directory was. Everything
/// else may or may not be there, depending on the file system.
#[derive(Default)]
pub struct Stable {
    names: BTreeMap<PathBuf, Name>,
}

/// Effect of a power failure on unsynced data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Names are as at the directory's last sync: files created or renamed since are missing, and removed or replaced
    /// ones are back. No name exists without its file's content, as on btrfs, and on ext4 for files replacing
    /// others.
    Names,
    /// Names are the latest ones, and files whose content was not synced are empty.
    Content,
    /// Like [`Loss::Content`], but files have their length, with zeros in place of their content.
    Zeros,
}

/// A changed name. An unchanged one is on the disk, with its content.
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

    /// Call before a file is created or overwritten.
    pub fn create(&mut self, path: &Path, bytes: &[u8]) {
        let name = self.name(path);
        let content = Arc::new(Content { bytes: bytes.to_owned(), is_synced: AtomicBool::new(false) });
        // An existing file is overwritten, under all its names.
        let is_same = |(one, other): (&Arc<Content>, &Arc<Content>)| Arc::ptr_eq(one, other);
        if name.now.as_ref().zip(name.on_disk.as_ref()).is_some_and(is_same) {
            name.on_disk = Some(content.clone());
        }
        name.now = Some(content);
    }

    /// Call before a file is renamed.
    pub fn rename(&mut self, from: &Path, to: &Path) {
        let content = self.name(from).now.clone();
        self.name(to).now = content;
        self.name(from).now = None;
    }

    /// Call before a file is removed.
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

    /// Excludes a directory outside of disks: the code clearing memory is responsible for it at a power failure.
    pub fn forget(&mut self, directory: &Path) {
        self.names.retain(|path, _| !path.starts_with(directory));
    }

    /// Leaves the files as after such a power failure.
    pub fn lose_power(&mut self, loss: Loss) {
        for (path, name) in std::mem::take(&mut self.names) {
            let left = if loss == Loss::Names { name.on_disk } else { name.now };
            // A restored file is restored in its directory.
            if let (Some(_), Some(parent)) = (&left, path.parent()) {
                fs::create_dir_all(parent).unwrap();
            }
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
