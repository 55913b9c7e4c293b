//! Keeps the logs of failed tests. A panic anywhere in the process marks all its clusters, because the test's own
//! cluster is not known.

use std::{
    fs, panic,
    path::{Path, PathBuf},
    sync::{Mutex, Once, PoisonError},
};

static CLUSTERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();

/// Marks this cluster at each later panic.
pub(super) fn watch(state: &Path) {
    CLUSTERS.lock().unwrap_or_else(PoisonError::into_inner).push(state.to_owned());
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |information| {
            before(information);
            // Not `lock`: a panic while the list is locked would wait for itself.
            if let Ok(clusters) = CLUSTERS.try_lock() {
                for state in clusters.iter() {
                    mark(state);
                }
            }
        }));
    });
}

/// Removes an ended cluster.
pub(super) fn forget(state: &Path) {
    CLUSTERS.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| known != state);
}

/// Makes the supervisor keep the logs.
pub(super) fn mark(state: &Path) {
    let marker = state.join("failed");
    if !marker.exists() && fs::write(&marker, "").is_ok() {
        eprintln!("logs of the cluster are kept in {}", state.join("log").display());
    }
}

/// Removes all but the logs, if no supervisor ever took the directory over.
pub(super) fn tidy(state: &Path) {
    if state.join("lock").exists() {
        return;
    }
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name() != "log" && entry.file_name() != "failed" {
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}
