//! Directories below another root: a driver's installation, which may be a container's root file system, mounted read-only.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};

/// Where a file is that whoever has `root` as its own sees at `path`: links lead to below the root, also absolute ones.
///
/// # Errors
/// What the operating system says, `NotFound` where there is none.
pub(super) fn find(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let root = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let found = openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)?;
    fs::read_link(own(&found))
}

/// The same of a directory that something is to be mounted on. Where it is not there it is made, without writing below the
/// root: in the place of the directory in which it is missing comes one in memory, with all that was there mounted into it.
/// Only in this mount namespace, which is to be private.
///
/// # Errors
/// What the operating system says: without CAP_SYS_ADMIN, or where something else is in the place.
pub(super) fn mount_point(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let missing = |ancestor: &&Path| matches!(find(root, ancestor), Err(error) if error.kind() == io::ErrorKind::NotFound);
    let depth = path.ancestors().take_while(missing).count();
    let there = path.ancestors().nth(depth).unwrap_or(Path::new("/"));
    let found = find(root, there)?;
    let place = match path.strip_prefix(there) {
        Ok(rest) if depth > 0 => found.join(rest),
        _ => return Ok(found),
    };
    replace(&found)?;
    fs::create_dir_all(&place)?;
    Ok(place)
}

/// Mounts a directory in memory over another, and what that has into it.
fn replace(directory: &Path) -> io::Result<()> {
    let old = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("mps"), directory, Some("tmpfs"), flags, Some("mode=755"))?;
    for entry in fs::read_dir(own(&old))? {
        let entry = entry?;
        let (from, to) = (entry.path(), directory.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
            continue;
        }
        if kind.is_dir() {
            fs::create_dir(&to)?;
        } else {
            fs::write(&to, "")?;
        }
        bind(&from, &to)?;
    }
    Ok(())
}

/// Lets a file or directory be seen at another place, with all that is mounted below it.
pub(super) fn bind(from: &Path, to: &Path) -> io::Result<()> {
    let none: Option<&str> = None;
    Ok(mount(Some(from), to, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?)
}

/// The path by which this process reaches an open file, whatever was mounted over it since.
fn own(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_to_below_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        symlink("/usr/bin", root.join("bin")).unwrap();
        fs::write(root.join("usr/bin/program"), "").unwrap();
        symlink("../../../../../usr/bin/program", root.join("usr/bin/link")).unwrap();
        let found = root.join("usr/bin/program");
        for path in ["/bin/program", "bin/link", "/../../usr/bin/link"] {
            assert_eq!(find(&root, Path::new(path)).unwrap(), found, "{path}");
        }
        assert_eq!(find(&root, Path::new("/")).unwrap(), root);
        let missing = find(&root, Path::new("/usr/bin/other")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        // What is there needs no mount, and so no rights.
        assert_eq!(mount_point(&root, Path::new("/bin")).unwrap(), root.join("usr/bin"));
    }
}
