use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};

use crate::open_error::OpenError;

/// The library's name, stable over versions.
pub const LIBRARY_NAME: &str = "libnvidia-ml.so.1";

/// The directories of a driver's libraries below its installation root, most usual first: Debian and Ubuntu, RHEL and
/// SUSE, Debian's alternatives, plain `lib`, the device injection of container runtimes, GKE and COS, WSL, Bottlerocket, Talos, NixOS.
pub const LIBRARY_DIRECTORIES: &[&str] = &[
    #[cfg(target_arch = "x86_64")]
    "usr/lib/x86_64-linux-gnu",
    #[cfg(target_arch = "aarch64")]
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "lib64",
    #[cfg(target_arch = "x86_64")]
    "lib/x86_64-linux-gnu",
    #[cfg(target_arch = "aarch64")]
    "lib/aarch64-linux-gnu",
    #[cfg(target_arch = "x86_64")]
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    #[cfg(target_arch = "aarch64")]
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "usr/lib",
    "lib",
    "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib",
    "home/kubernetes/bin/nvidia/lib64",
    "home/kubernetes/bin/nvidia/lib",
    "usr/lib/wsl/lib",
    "usr/lib/nvidia/tesla",
    "usr/local/glibc/usr/lib",
    "run/opengl-driver/lib",
];

/// Location of a driver's installation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverRoot {
    /// The root of the installation, in this process's file system.
    pub path: PathBuf,
    /// Directories below the root to search before the usual ones: of libraries, and of programs.
    pub first: Vec<PathBuf>,
}

impl From<&Path> for DriverRoot {
    /// With only the usual directories.
    fn from(path: &Path) -> Self {
        Self { path: path.to_owned(), first: Vec::new() }
    }
}

impl DriverRoot {
    /// The directories of libraries, in search order.
    pub fn library_directories(&self) -> impl Iterator<Item = &Path> {
        self.first.iter().map(PathBuf::as_path).chain(LIBRARY_DIRECTORIES.iter().map(Path::new))
    }

    /// The file or directory at this place below the root. Links may be absolute, as NixOS has them: they are followed below the root.
    #[must_use]
    pub fn find(&self, path: &Path) -> Option<PathBuf> {
        let plain = self.path.join(path);
        if plain.exists() { Some(plain) } else { resolve_below(&self.path, path).ok() }
    }

    /// Finds the driver's library.
    ///
    /// Skips a 32-bit or foreign library, and a dangling link.
    ///
    /// # Errors
    /// [`OpenError::NotFound`], or [`OpenError::OtherProcessor`] if there are only foreign ones.
    pub fn find_library(&self) -> Result<PathBuf, OpenError> {
        let mut foreign = None;
        for directory in self.library_directories() {
            let Some(path) = self.find(&directory.join(LIBRARY_NAME)).filter(|path| path.is_file()) else {
                continue;
            };
            if is_for_this_processor(&path) {
                return Ok(path);
            }
            foreign.get_or_insert(path);
        }
        Err(match foreign {
            Some(path) => OpenError::OtherProcessor { path },
            None => OpenError::NotFound { root: self.clone() },
        })
    }
}

/// Resolves `path` as a process with the root directory `root` would: even absolute links stay below the root.
///
/// # Errors
/// The operating system's error; `NotFound` if there is no such file.
pub fn resolve_below(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let root = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let found = openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)?;
    fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// Whether a library is for this build's processor, by its ELF header. True for an unreadable file:
/// the loader's error message is better.
#[must_use]
pub fn is_for_this_processor(path: &Path) -> bool {
    const MAGIC: &[u8] = b"\x7fELF";
    const CLASS: usize = 4;
    const CLASS_64: u8 = 2;
    const MACHINE: usize = 18;
    let machine: u16 = match std::env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        _ => return true,
    };
    let mut header = [0; 20];
    if File::open(path).and_then(|mut file| file.read_exact(&mut header)).is_err() {
        return true;
    }
    !header.starts_with(MAGIC)
        || header[CLASS] == CLASS_64 && header[MACHINE..MACHINE + 2] == machine.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn elf(class: u8, machine: u16) -> Vec<u8> {
        let mut header = b"\x7fELF".to_vec();
        header.resize(20, 0);
        header[4] = class;
        header[18..20].copy_from_slice(&machine.to_le_bytes());
        header
    }

    fn ours() -> Vec<u8> {
        elf(2, if cfg!(target_arch = "aarch64") { 183 } else { 62 })
    }

    fn find_library(root: &Path) -> Result<PathBuf, OpenError> {
        DriverRoot::from(root).find_library()
    }

    fn put(root: &Path, directory: &str, content: &[u8]) -> PathBuf {
        let directory = root.join(directory);
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join(LIBRARY_NAME);
        fs::write(&path, content).unwrap();
        path
    }

    #[test]
    fn every_usual_directory_is_searched() {
        for directory in LIBRARY_DIRECTORIES {
            let root = tempfile::tempdir().unwrap();
            let path = put(root.path(), directory, &ours());
            assert_eq!(find_library(root.path()).unwrap(), path);
        }
    }

    #[test]
    fn a_32_bit_library_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let foreign = put(root.path(), "usr/lib64", &elf(1, 3));
        assert!(
            matches!(find_library(root.path()), Err(OpenError::OtherProcessor { path }) if path == foreign)
        );
        let path = put(root.path(), "usr/lib", &ours());
        assert_eq!(find_library(root.path()).unwrap(), path);
    }

    #[test]
    fn directories_that_are_named_come_first() {
        let directory = tempfile::tempdir().unwrap();
        let root = DriverRoot { path: directory.path().to_owned(), first: vec!["opt/vendor/lib".into()] };
        let error = root.find_library().unwrap_err().to_string();
        assert!(error.contains("searched opt/vendor/lib, usr/lib"), "{error}");
        put(&root.path, "usr/lib64", &ours());
        let path = put(&root.path, "opt/vendor/lib", &ours());
        assert_eq!(root.find_library().unwrap(), path);
    }

    /// As on NixOS: the directory is an absolute link into the store, and each file in it another.
    #[test]
    fn absolute_links_are_followed_below_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let path = put(&root, "nix/store/x-nvidia-x11/lib", &ours());
        let (drivers, run) = (root.join("nix/store/x-graphics-drivers/lib"), root.join("run"));
        fs::create_dir_all(&drivers).unwrap();
        fs::create_dir_all(&run).unwrap();
        let link = std::os::unix::fs::symlink::<&str, PathBuf>;
        link("/nix/store/x-nvidia-x11/lib/libnvidia-ml.so.1", drivers.join(LIBRARY_NAME)).unwrap();
        link("/nix/store/x-graphics-drivers", run.join("opengl-driver")).unwrap();
        assert_eq!(find_library(&root).unwrap(), path);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/lib64")).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", root.path().join("usr/lib64").join(LIBRARY_NAME))
            .unwrap();
        assert!(matches!(find_library(root.path()), Err(OpenError::NotFound { .. })));
        let path = put(root.path(), "lib", &ours());
        assert_eq!(find_library(root.path()).unwrap(), path);
    }
}
