//! A unix socket with a name only while listening, removed only by its owner.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::net::{UnixListener, UnixStream};

/// Prefix of sockets' temporary names. The kubelet ignores names with a leading dot.
pub(super) const STAGING_PREFIX: &str = ".dra-";

/// How long a connection may take to get into the backlog; after a longer time the listener counts as alive but busy.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A living process listens there.
    #[error(
        "another process already serves {path}; only instances with different --pod-uid may run side by side: waiting \
         for it to end"
    )]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The directory can't be made, or the socket can't be created or renamed.
    #[error(
        "cannot create the socket {path}: check that its directory is on a writable disk and mounted into the pod"
    )]
    Create {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The kind of file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupant {
    /// Nothing.
    Nobody,
    /// A socket without a listener.
    Dead,
    /// A socket with an answer, or a possible one: anything but a clear refusal counts as alive.
    Alive,
    /// Something other than a socket.
    OtherFile,
}

/// A listening socket and its name in the file system.
#[derive(Debug)]
pub struct ListeningSocket {
    listener: UnixListener,
    name: SocketName,
}

/// The name of a socket in the file system, to be removed later.
#[derive(Debug)]
pub struct SocketName {
    path: PathBuf,
    /// Device and inode, to distinguish the socket from another instance's of the same name.
    identity: (u64, u64),
}

impl ListeningSocket {
    /// Creates the socket under a temporary name in `staging`, listens, and only then renames the socket to `path`: a
    /// client can connect as soon as the name exists. Replaces a dead socket of the same name.
    ///
    /// Where the two directories are different mounts, so a rename is impossible, the socket is created in place.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub async fn bind(path: &Path, staging: &Path) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Create { path: path.to_owned(), source };
        match occupant(path).await {
            Occupant::Alive => return Err(ListenError::InUse { path: path.to_owned() }),
            Occupant::OtherFile => {
                return Err(failed(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "a file that is no socket is there",
                )));
            }
            Occupant::Nobody | Occupant::Dead => {}
        }
        let listener = listen(path, staging).map_err(failed)?;
        let identity = identity(path).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = UnixListener::from_std(listener).map_err(failed)?;
        Ok(Self { listener, name: SocketName { path: path.to_owned(), identity } })
    }

    /// Separates the listener from the socket's name.
    pub fn into_parts(self) -> (UnixListener, SocketName) {
        (self.listener, self.name)
    }
}

impl SocketName {
    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the name, unless taken by another socket since.
    ///
    /// # Errors
    /// When the file is there and cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        match identity(&self.path) {
            Ok(found) if found == self.identity => ignore_missing(fs::remove_file(&self.path)),
            Ok(_) => Ok(()),
            Err(error) => ignore_missing(Err(error)),
        }
    }
}

fn listen(path: &Path, staging: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::create_dir_all(staging)?;
    let staged = tempfile::Builder::new()
        .prefix(STAGING_PREFIX)
        .make_in(staging, |path| std::os::unix::net::UnixListener::bind(path))?;
    // Any client able to connect can prepare claims.
    fs::set_permissions(staged.path(), fs::Permissions::from_mode(0o600))?;
    match staged.persist(path) {
        Ok(listener) => Ok(listener),
        Err(failed) if failed.error.kind() == io::ErrorKind::CrossesDevices => {
            ignore_missing(fs::remove_file(path))?;
            let listener = std::os::unix::net::UnixListener::bind(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        }
        Err(failed) => Err(failed.error),
    }
}

/// Checks the kind of file at a path.
pub(super) async fn occupant(path: &Path) -> Occupant {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => return Occupant::OtherFile,
        Err(_) => return Occupant::Nobody,
    }
    match tokio::time::timeout(PROBE_TIMEOUT, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Occupant::Dead,
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Occupant::Nobody,
        _ => Occupant::Alive,
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

pub(super) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn listens_under_its_name_only_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("registry/driver-reg.sock");
        let staging = directory.path().join("plugin");
        let socket = ListeningSocket::bind(&path, &staging).await.unwrap();
        UnixStream::connect(&path).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&staging).unwrap().count(), 0);
        let (_, name) = socket.into_parts();
        name.remove().unwrap();
        name.remove().unwrap();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_a_living_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dra.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let first = ListeningSocket::bind(&path, directory.path()).await.unwrap();
        let second = ListeningSocket::bind(&path, directory.path()).await;
        assert!(matches!(second, Err(ListenError::InUse { .. })), "{second:?}");
        drop(first);
        ListeningSocket::bind(&path, directory.path()).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_in_the_way_is_an_error_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dra.sock");
        fs::write(&path, "important").unwrap();
        let error = ListeningSocket::bind(&path, directory.path()).await.unwrap_err();
        assert!(matches!(error, ListenError::Create { .. }), "{error:?}");
        assert_eq!(fs::read(&path).unwrap(), b"important");
    }

    #[tokio::test]
    async fn the_socket_of_a_successor_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dra.sock");
        let (listener, name) = ListeningSocket::bind(&path, directory.path()).await.unwrap().into_parts();
        drop(listener);
        let _successor = ListeningSocket::bind(&path, directory.path()).await.unwrap();
        name.remove().unwrap();
        UnixStream::connect(&path).await.unwrap();
    }
}
