//! Removes directories writable by containers. Whatever they contain, the removal needs no deep stack, only a few
//! descriptors, and follows no links. (The standard library uses stack and a descriptor for each level of directories.)

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::error::MpsError;

/// Time limit for one directory: a running container may write faster than files can be removed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Removes the content of a directory, if it exists, or whatever is in its place.
pub(super) async fn remove_content(path: &Path) -> Result<(), MpsError> {
    aside(path, |path| Emptying::of(path, PATIENCE)).await
}

/// Removes a directory with its content, or whatever is in its place.
pub(super) async fn remove_tree(path: &Path) -> Result<(), MpsError> {
    aside(path, |path| remove(path, PATIENCE)).await
}

/// The same as [`remove_tree`]. Blocks.
pub(super) fn remove_tree_now(path: &Path) -> io::Result<()> {
    remove(path, PATIENCE)
}

/// Runs removal on a blocking thread: a container may have made millions of files, and daemons of other cards must be
/// looked after meanwhile.
async fn aside(path: &Path, work: fn(&Path) -> io::Result<()>) -> Result<(), MpsError> {
    let own = path.to_owned();
    let done = tokio::task::spawn_blocking(move || work(&own)).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(MpsError::at(path))
}

fn remove(path: &Path, patience: Duration) -> io::Result<()> {
    match Emptying::of(path, patience).and_then(|()| fs::remove_dir(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A directory being emptied. Subdirectories found below are moved up to this directory, so that each level gets empty.
struct Emptying {
    root: OwnedFd,
    /// Number of directories moved up so far.
    lifted: u64,
    until: Instant,
}

impl Emptying {
    fn of(path: &Path, patience: Duration) -> io::Result<()> {
        let root = match open(CWD, path) {
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) => return fs::remove_file(path),
            root => root?,
        };
        let mut emptying = Self { root, lifted: 0, until: Instant::now() + patience };
        while emptying.pass()? {}
        Ok(())
    }

    /// Removes the present content; returns whether there was any.
    fn pass(&mut self) -> io::Result<bool> {
        let mut is_empty = true;
        for entry in Dir::read_from(&self.root)? {
            let entry = entry?;
            if is_entry(entry.file_name()) {
                is_empty = false;
                self.remove(entry.file_name())?;
            }
        }
        Ok(!is_empty)
    }

    fn remove(&mut self, name: &CStr) -> io::Result<()> {
        let directory = match open(&self.root, name) {
            Ok(directory) => directory,
            // Not a directory (maybe a link), or already removed by somebody else.
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {
                return self.unlink(&self.root, name, AtFlags::empty());
            }
            Err(error) => return Err(error.into()),
        };
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let inner = entry.file_name();
            let is_directory = match entry.file_type() {
                FileType::Directory => true,
                // Some file systems don't report the type.
                FileType::Unknown => open(&directory, inner).is_ok(),
                _ => false,
            };
            match (is_entry(inner), is_directory) {
                (false, _) => {}
                (true, true) => self.lift(&directory, inner)?,
                (true, false) => self.unlink(&directory, inner, AtFlags::empty())?,
            }
        }
        self.unlink(&self.root, name, AtFlags::REMOVEDIR)
    }

    /// Moves a directory up to the root, under a free name.
    fn lift(&mut self, directory: &OwnedFd, name: &CStr) -> io::Result<()> {
        loop {
            self.check_time()?;
            self.lifted += 1;
            let free = CString::new(format!("lifted-{}", self.lifted))?;
            match renameat(directory, name, &self.root, &free) {
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn unlink(&self, directory: &OwnedFd, name: &CStr, flags: AtFlags) -> io::Result<()> {
        self.check_time()?;
        match unlinkat(directory, name, flags) {
            // Changed by a process still writing there: the next pass handles the change.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR) => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn check_time(&self) -> io::Result<()> {
        if Instant::now() < self.until {
            return Ok(());
        }
        let text = "it holds more than can be removed in time, or somebody goes on writing there";
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }
}

fn is_entry(name: &CStr) -> bool {
    name != c"." && name != c".."
}

fn open(directory: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, path, flags, Mode::empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[tokio::test]
    async fn all_that_can_be_in_a_directory_goes_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let (root, kept) = (place.path().join("root"), place.path().join("kept"));
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::create_dir_all(root.join("a/lifted-1/lifted-2")).unwrap();
        fs::create_dir_all(root.join("lifted-2/lifted-1")).unwrap();
        fs::write(root.join("lifted-1"), "").unwrap();
        fs::write(root.join("a/b/file"), "").unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "").unwrap();
        for link in ["link", "a/link", "a/b/c/link"] {
            symlink(&kept, root.join(link)).unwrap();
        }
        remove_content(&root).await.unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        fs::create_dir_all(root.join("a/b")).unwrap();
        remove_tree(&root).await.unwrap();
        assert!(!root.exists() && kept.join("file").exists());
        remove_content(&root).await.unwrap();
        remove_tree(&root).await.unwrap();
    }

    #[tokio::test]
    async fn in_a_directorys_place_a_link_or_a_file_goes_itself() {
        let place = tempfile::tempdir().unwrap();
        let (kept, other) = (place.path().join("kept"), place.path().join("other"));
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "").unwrap();
        let plants: [&dyn Fn() -> io::Result<()>; 2] =
            [&|| symlink(&kept, &other), &|| fs::write(&other, "")];
        for plant in plants {
            plant().unwrap();
            remove_tree(&other).await.unwrap();
            plant().unwrap();
            remove_content(&other).await.unwrap();
            assert!(other.symlink_metadata().is_err());
        }
        assert!(kept.join("file").exists());
    }

    #[test]
    fn what_takes_too_long_is_given_up() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        let error = remove(place.path(), Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
