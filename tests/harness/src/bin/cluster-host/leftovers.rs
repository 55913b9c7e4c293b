//! Removes a cluster's directory, and directories of earlier clusters whose supervisor was killed too.

use std::{
    fs::{self, File},
    path::Path,
    time::Duration,
};

use tessera_harness::STATE_PREFIX;

use crate::cgroups;

/// Content of a cluster's lock file, so no other directory is mistaken for a cluster's.
pub const LOCK_CONTENT: &[u8] = b"a test cluster of Tessera, which lives while this is locked\n";

/// A younger directory without a lock may belong to a cluster being started.
const SETTLED: Duration = Duration::from_secs(60);

/// Removes a cluster's directory; if the owner marked a failure, the logs are kept.
pub fn remove_state(state: &Path) {
    let failed = state.join("failed").exists();
    let kept: &[&str] = if failed { &["log", "failed", "lock"] } else { &["lock"] };
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        if !kept.iter().any(|name| entry.file_name() == *name) {
            remove(&entry.path());
        }
    }
    // Last, because its absence marks a complete removal.
    remove(&state.join("lock"));
    if !failed {
        remove(state);
    }
}

fn remove(path: &Path) {
    let result = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    if let Err(error) = result {
        eprintln!("cluster-host: cannot remove {}: {error}", path.display());
    }
}

/// Removes ended clusters in `parent`.
pub fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(STATE_PREFIX));
        if ours && is_stale(&path) {
            cgroups::remove(&path);
            remove(&path);
        }
    }
}

/// A directory is stale if nobody holds its lock. Logs kept after a failure are not: their lock is removed.
fn is_stale(path: &Path) -> bool {
    let lock = path.join("lock");
    let old = fs::metadata(&lock)
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > SETTLED));
    let ours = fs::read(&lock).is_ok_and(|content| content == LOCK_CONTENT);
    old && ours && File::open(&lock).is_ok_and(|file| file.try_lock().is_ok())
}
