//! Paths below another root: a driver's installation, possibly the root file system of a container, mounted read-only.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use rustix::fs::{Mode, OFlags, open};

pub(super) use tessera_nvml::resolve_below as find;

/// Resolves a directory to mount something on, as [`find`] does. A missing directory is made without writing below the
/// root: the closest existing parent is covered by a directory in memory, with all its entries mounted inside. Changes
/// only this mount namespace, which must be private.
///
/// # Errors
/// The operating system's error, for example without CAP_SYS_ADMIN, or if something else is in the place.
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

/// Mounts a directory in memory over another, with the entries of the covered one inside.
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

/// Bind-mounts a file or directory at another place, with everything mounted below.
pub(super) fn bind(from: &Path, to: &Path) -> io::Result<()> {
    let none: Option<&str> = None;
    Ok(mount(Some(from), to, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?)
}

/// This process's path to an open file, even if something was mounted over the file since.
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
        // An existing directory needs no mount, and so no privileges.
        assert_eq!(mount_point(&root, Path::new("/bin")).unwrap(), root.join("usr/bin"));
    }
}
