use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Every effect of the journal and the CDI directory on the machine, one method each.
///
/// Production uses [`LocalFileSystem`]. Tests wrap it to crash, fail or fill the disk at the n-th effect, so a crash
/// matrix is a loop over n and needs no named points in the code.
pub trait FileSystem: Send + Sync + 'static {
    /// Creates a directory and its missing parents.
    ///
    /// # Errors
    /// The operating system's.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Writes a file, replacing an existing file.
    ///
    /// # Errors
    /// The operating system's. The file may then be incomplete.
    fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<File>;

    /// Starts writing a file's content to the disk, so several files can be under way before waiting for the
    /// first: one wait then commits them all. A file system without this operation is slower, not wrong.
    fn start_sync(&self, _file: &File) {}

    /// Returns when the file's content is on the disk.
    ///
    /// # Errors
    /// The operating system's.
    fn sync(&self, file: &File, path: &Path) -> io::Result<()>;

    /// Renames a file within its directory, replacing a file with the new name.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's; `NotFound` where there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns when the names in a directory are on the disk.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Reads a file of at most [`MAXIMUM_FILE`] bytes.
    ///
    /// # Errors
    /// The operating system's; `InvalidData` for a longer file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The files in a directory, by name. Names other than UTF-8 are left out: none of ours are.
    ///
    /// # Errors
    /// The operating system's; `NotFound` where there is no such directory.
    fn list(&self, path: &Path) -> io::Result<Vec<Listed>>;
}

/// Replaces a file atomically. Not synced: for information obtainable again.
///
/// # Errors
/// The operating system's; an existing file is then unchanged.
pub fn replace_unsynced(file_system: &dyn FileSystem, path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Two instances may do this at once, each as process 1 of its container.
    replace_by(file_system, &path.with_extension(format!("{:016x}.new", fastrand::u64(..))), path, bytes)
}

/// Replaces a file atomically and durably: the content is on the disk on return.
///
/// # Errors
/// The operating system's; an existing file is then unchanged, unless only the last sync failed.
pub fn replace_synced(file_system: &dyn FileSystem, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{:016x}.new", fastrand::u64(..)));
    let file = file_system.create(&temporary, bytes);
    let replaced = file.and_then(|file| file_system.sync(&file, &temporary));
    let replaced = replaced.and_then(|()| file_system.rename(&temporary, path));
    if let Err(error) = replaced {
        let _ = file_system.remove(&temporary);
        return Err(error);
    }
    path.parent().map_or(Ok(()), |directory| file_system.sync_directory(directory))
}

/// [`replace_unsynced`] by way of a temporary file of this name in the same directory, for recognition after a crash.
///
/// # Errors
/// The operating system's; an existing file is then unchanged.
pub fn replace_by(
    file_system: &dyn FileSystem,
    temporary: &Path,
    path: &Path,
    bytes: &[u8],
) -> io::Result<()> {
    let written = file_system.create(temporary, bytes).and_then(|_| file_system.rename(temporary, path));
    written.inspect_err(|_| {
        // The incomplete temporary file takes space needed on a full disk.
        let _ = file_system.remove(temporary);
    })
}

/// A file in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name in the directory.
    pub name: String,
    /// Changes whenever the file is replaced.
    pub identity: FileIdentity,
}

/// Changes whenever a file is replaced or written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Size limit for reading a file, in bytes: a record has a few kilobytes, a CDI spec with all of a driver's files some
/// tens.
pub const MAXIMUM_FILE: u64 = 8 << 20;

/// The file systems of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalFileSystem;

impl FileSystem for LocalFileSystem {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<File> {
        // Container runtimes read CDI specs as root, and the plugin its journal; admins may read both.
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path)?;
        file.write_all(bytes)?;
        Ok(file)
    }

    fn start_sync(&self, file: &File) {
        // Linux starts the write-back of dirty pages marked as not needed (fadvise64 in mm/fadvise.c).
        let _ = fadvise(file, 0, None, Advice::DontNeed);
    }

    fn sync(&self, file: &File, _path: &Path) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        use std::io::Read as _;
        // Non-blocking, in case somebody put a pipe in the place of a file.
        let file = OpenOptions::new().read(true).custom_flags(nonblocking()).open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let mut bytes = Vec::new();
        file.take(MAXIMUM_FILE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAXIMUM_FILE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is larger than 8 MiB"));
        }
        Ok(bytes)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Listed>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Removed since listing.
            let Ok(metadata) = entry.metadata() else { continue };
            let identity = FileIdentity {
                inode: metadata.ino(),
                size: metadata.size(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            };
            files.push(Listed { name, identity });
        }
        files.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }
}

fn nonblocking() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits().cast_signed()
}
