//! Removes sockets left behind by killed instances.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{
    listening_socket::{Occupant, STAGING_PREFIX, ignore_missing, occupant},
    socket_paths::{belong_together, is_dra_socket, plugin_directory, registry_directory},
};

/// Age from which a temporary socket is stale: a starting instance renames its own within milliseconds.
const STAGING_AGE: Duration = Duration::from_secs(60);

/// Removes the sockets of this driver's dead instances: the kubelet would try to connect to them for ever, and keeps an
/// instance registered until its registration socket is gone.
///
/// The driver's own sockets are recognised by its plugin directory, used by no other driver. A live socket is left
/// alone. Failures to read or remove a file are logged and skipped.
pub async fn remove(kubelet_directory: &Path, driver_name: &str) {
    let plugin = plugin_directory(kubelet_directory, driver_name);
    let registry = registry_directory(kubelet_directory);
    for name in names(&plugin) {
        let path = plugin.join(&name);
        if name.starts_with(STAGING_PREFIX) && old(&path) && occupant(&path).await == Occupant::Dead {
            log(&path, ignore_missing(fs::remove_file(&path)));
        }
        if !is_dra_socket(&name) || occupant(&path).await != Occupant::Dead {
            continue;
        }
        // The registration socket first: if this process dies here, the DRA socket's name still leads to the other.
        let registrations = names(&registry).into_iter().filter(|r| belong_together(driver_name, &name, r));
        for registration in registrations.map(|r| registry.join(r)).collect::<Vec<PathBuf>>() {
            if occupant(&registration).await == Occupant::Dead {
                log(&registration, ignore_missing(fs::remove_file(&registration)));
            }
        }
        log(&path, ignore_missing(fs::remove_file(&path)));
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            tracing::warn!(directory = %directory.display(), %error, "cannot look for sockets of dead instances");
            return Vec::new();
        }
    };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

fn old(path: &Path) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|found| found.modified());
    modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > STAGING_AGE))
}

fn log(path: &Path, removed: io::Result<()>) {
    match removed {
        Ok(()) => tracing::info!(socket = %path.display(), "removed the socket of a dead instance"),
        Err(error) => {
            tracing::warn!(socket = %path.display(), %error, "cannot remove the socket of a dead instance");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::{super::socket_paths::SocketPaths, *};

    const DRIVER: &str = "gpu.tessera.dev";

    fn bind(kubelet: &Path, driver: &str, uid: Option<&str>) -> (SocketPaths, [UnixListener; 2]) {
        let paths = SocketPaths::new(kubelet, driver, uid).unwrap();
        let listen = |path: &Path| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            UnixListener::bind(path).unwrap()
        };
        let listeners = [listen(&paths.dra), listen(&paths.registration)];
        (paths, listeners)
    }

    #[tokio::test]
    async fn dead_instances_of_this_driver_and_nothing_else() {
        let kubelet = tempfile::tempdir_in("/tmp").unwrap();
        let kubelet = kubelet.path();
        let (dead, _) = bind(kubelet, DRIVER, Some("dead"));
        let (dead_plain, _) = bind(kubelet, DRIVER, None);
        let (alive, _listeners) = bind(kubelet, DRIVER, Some("alive"));
        let (other, _) = bind(kubelet, "gpu.tessera.dev-other", None);
        let (half, [dra, _registration]) = bind(kubelet, DRIVER, Some("half"));
        drop(dra);
        let file = plugin_directory(kubelet, DRIVER).join("dra-notes.sock");
        fs::write(&file, "no socket").unwrap();

        remove(kubelet, DRIVER).await;

        assert!(!dead.dra.exists() && !dead.registration.exists());
        assert!(!dead_plain.dra.exists() && !dead_plain.registration.exists());
        assert!(alive.dra.exists() && alive.registration.exists());
        assert!(other.dra.exists() && other.registration.exists());
        assert!(!half.dra.exists() && half.registration.exists(), "a socket that answers stays");
        assert!(file.exists());
    }

    #[tokio::test]
    async fn unnamed_sockets_go_when_they_are_old() {
        let kubelet = tempfile::tempdir_in("/tmp").unwrap();
        let plugin = plugin_directory(kubelet.path(), DRIVER);
        fs::create_dir_all(&plugin).unwrap();
        let (fresh, aged) = (plugin.join(".dra-fresh"), plugin.join(".dra-aged"));
        for path in [&fresh, &aged] {
            drop(UnixListener::bind(path).unwrap());
        }
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        let times = rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec::try_from(
                long_ago.duration_since(SystemTime::UNIX_EPOCH).unwrap(),
            )
            .unwrap(),
            last_modification: rustix::fs::Timespec::try_from(
                long_ago.duration_since(SystemTime::UNIX_EPOCH).unwrap(),
            )
            .unwrap(),
        };
        rustix::fs::utimensat(rustix::fs::CWD, &aged, &times, rustix::fs::AtFlags::empty()).unwrap();
        remove(kubelet.path(), DRIVER).await;
        assert!(fresh.exists() && !aged.exists());
    }
}
