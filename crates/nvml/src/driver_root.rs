use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::open_error::OpenError;

/// The library's name, stable over versions.
pub const LIBRARY_NAME: &str = "libnvidia-ml.so.1";

/// The directories of a driver's libraries below its installation root, most usual first: Debian and Ubuntu, RHEL and
/// SUSE, Debian's alternatives, plain `lib`, the device injection of container runtimes, GKE and COS, WSL.
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
];

/// Finds the driver's library below the root of its installation, as this process sees it.
///
/// Skips a 32-bit or foreign library, and a dangling symbolic link (an absolute link in a mounted root points outside
/// it).
///
/// # Errors
/// [`OpenError::NotFound`], or [`OpenError::OtherProcessor`] if there are only foreign ones.
pub fn find_library(root: &Path) -> Result<PathBuf, OpenError> {
    let mut foreign = None;
    for directory in LIBRARY_DIRECTORIES {
        let path = root.join(directory).join(LIBRARY_NAME);
        if !path.is_file() {
            continue;
        }
        if is_for_this_processor(&path) {
            return Ok(path);
        }
        foreign.get_or_insert(path);
    }
    Err(match foreign {
        Some(path) => OpenError::OtherProcessor { path },
        None => OpenError::NotFound { root: root.to_owned() },
    })
}

/// Whether a library is for the processor this was built for, by its ELF header. True for a file that can't be read:
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
