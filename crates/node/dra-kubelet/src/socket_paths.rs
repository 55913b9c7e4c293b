//! Paths of the two sockets of one instance.

use std::path::{Path, PathBuf};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

/// Longest path of a unix socket: the 108 bytes of `sun_path` less the final NUL, needed by Go (the kubelet).
pub const MAX_SOCKET_PATH: usize = 107;

/// Characters of the hash in the shortest name of a DRA socket: 48 bits, enough to tell a handful of instances apart.
const SHORT_HASH: usize = 8;

/// Suffix of registration sockets.
const REGISTRATION_SUFFIX: &str = "-reg.sock";

/// Even the shortest socket path is too long.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the path of the socket {path} has {length} bytes, but unix sockets allow {MAX_SOCKET_PATH}: choose a shorter \
     --driver-name or --kubelet-directory"
)]
pub struct SocketPathTooLong {
    /// The shortest possible path.
    pub path: PathBuf,
    /// Its length in bytes.
    pub length: usize,
}

/// The sockets of one instance of the plugin.
///
/// With a pod UID the names differ between instances, so that two of them can serve during a rolling upgrade:
/// `<kubelet>/plugins_registry/<driver>-<uid>-reg.sock` and `<kubelet>/plugins/<driver>/dra-<uid>.sock`. Where such a
/// path is too long, its name is `dra-<hash>…`: for the registration socket as in upstream's helper
/// (`kubeletplugin.RollingUpdateRegistrarSocketFile`, its last form), for the DRA socket the start of the same hash.
/// Without a pod UID they are `<driver>-reg.sock` and `dra.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPaths {
    /// The registration socket, in the directory watched by the kubelet.
    pub registration: PathBuf,
    /// The DRA socket, the endpoint named by the registration.
    pub dra: PathBuf,
}

impl SocketPaths {
    /// The paths for an instance of a driver.
    ///
    /// # Errors
    /// When even the shortest names make a path of more than [`MAX_SOCKET_PATH`] bytes.
    pub fn new(
        kubelet_directory: &Path,
        driver_name: &str,
        pod_uid: Option<&str>,
    ) -> Result<Self, SocketPathTooLong> {
        let registry = registry_directory(kubelet_directory);
        let plugin = plugin_directory(kubelet_directory, driver_name);
        let (registration, dra) = match pod_uid {
            None => (vec![format!("{driver_name}{REGISTRATION_SUFFIX}")], vec!["dra.sock".to_owned()]),
            Some(uid) => {
                let short = &hash_of_driver_and_uid(driver_name, uid)[..SHORT_HASH];
                let dra = vec![format!("dra-{uid}.sock"), format!("dra-{short}.sock")];
                (registration_names(driver_name, uid).to_vec(), dra)
            }
        };
        Ok(Self {
            registration: first_that_fits(&registry, &registration)?,
            dra: first_that_fits(&plugin, &dra)?,
        })
    }
}

/// The kubelet's directory of registration sockets.
pub fn registry_directory(kubelet_directory: &Path) -> PathBuf {
    kubelet_directory.join("plugins_registry")
}

/// The directory of the driver's own files on the node.
pub fn plugin_directory(kubelet_directory: &Path, driver_name: &str) -> PathBuf {
    kubelet_directory.join("plugins").join(driver_name)
}

/// Whether a file in the plugin directory is a DRA socket, by its name.
pub(super) fn is_dra_socket(name: &str) -> bool {
    name == "dra.sock" || name.strip_prefix("dra-").is_some_and(|rest| rest.ends_with(".sock"))
}

/// Whether a file in the registry is the registration socket of the instance with this DRA socket.
pub(super) fn belong_together(driver_name: &str, dra: &str, registration: &str) -> bool {
    let Some(instance) = dra.strip_prefix("dra").and_then(|rest| rest.strip_suffix(".sock")) else {
        return false;
    };
    let Some(instance) = instance.strip_prefix('-') else {
        return registration == format!("{driver_name}{REGISTRATION_SUFFIX}");
    };
    if registration_names(driver_name, instance).iter().any(|name| name == registration) {
        return true;
    }
    // The hash in the DRA socket's name is the start of the hash in the registration socket's name.
    let hash = registration.strip_prefix("dra-").and_then(|rest| rest.strip_suffix(REGISTRATION_SUFFIX));
    instance.len() == SHORT_HASH && hash.is_some_and(|hash| hash.starts_with(instance))
}

/// Names for the registration socket, best first.
fn registration_names(driver_name: &str, uid: &str) -> [String; 2] {
    let hash = hash_of_driver_and_uid(driver_name, uid);
    [format!("{driver_name}-{uid}{REGISTRATION_SUFFIX}"), format!("dra-{hash}{REGISTRATION_SUFFIX}")]
}

fn hash_of_driver_and_uid(driver_name: &str, uid: &str) -> String {
    URL_SAFE_NO_PAD.encode(&Sha256::digest(format!("{driver_name}\0{uid}"))[..16])
}

fn first_that_fits(directory: &Path, names: &[String]) -> Result<PathBuf, SocketPathTooLong> {
    let mut path = PathBuf::new();
    for name in names {
        path = directory.join(name);
        if path.as_os_str().len() <= MAX_SOCKET_PATH {
            return Ok(path);
        }
    }
    let length = path.as_os_str().len();
    Err(SocketPathTooLong { path, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "7d3c2a10-55f1-4d0c-9d1b-0c1f7c0f7a11";

    fn names(kubelet: &str, driver: &str, uid: Option<&str>) -> (String, String) {
        let paths = SocketPaths::new(Path::new(kubelet), driver, uid).unwrap();
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        (name(&paths.registration), name(&paths.dra))
    }

    #[test]
    fn plain_names_without_a_pod_uid() {
        let paths = SocketPaths::new(Path::new("/var/lib/kubelet"), "gpu.tessera.dev", None).unwrap();
        assert_eq!(
            paths.registration,
            Path::new("/var/lib/kubelet/plugins_registry/gpu.tessera.dev-reg.sock")
        );
        assert_eq!(paths.dra, Path::new("/var/lib/kubelet/plugins/gpu.tessera.dev/dra.sock"));
    }

    #[test]
    fn the_pod_uid_is_in_both_names() {
        let (registration, dra) = names("/var/lib/kubelet", "gpu.tessera.dev", Some(UID));
        assert_eq!(registration, format!("gpu.tessera.dev-{UID}-reg.sock"));
        assert_eq!(dra, format!("dra-{UID}.sock"));
    }

    /// Expected names from upstream's rule, computed with Go.
    #[test]
    fn hashes_where_the_path_would_be_too_long() {
        let driver = "x".repeat(63);
        let (registration, dra) = names("/var/lib/kubelet", &driver, Some(UID));
        assert_eq!(registration, "dra-c9tbF5hhuP_8VS43ZTJzcQ-reg.sock");
        assert_eq!(dra, "dra-c9tbF5hh.sock");
    }

    #[test]
    fn every_fitting_path_is_short_enough_and_the_rest_is_an_error() {
        for length in 0..100 {
            let kubelet = format!("/{}", "k".repeat(length));
            for driver in [1, 15, 40, 63].map(|n| "d".repeat(n)) {
                for uid in [None, Some(UID)] {
                    match SocketPaths::new(Path::new(&kubelet), &driver, uid) {
                        Ok(paths) => {
                            assert!(paths.dra.as_os_str().len() <= MAX_SOCKET_PATH);
                            assert!(paths.registration.as_os_str().len() <= MAX_SOCKET_PATH);
                        }
                        Err(error) => assert!(error.length > MAX_SOCKET_PATH),
                    }
                }
            }
        }
    }

    #[test]
    fn sockets_of_one_instance_belong_together_whatever_their_form() {
        for driver in ["gpu.tessera.dev", "gpu.department-of-large-machines.example.com", &"x".repeat(63)] {
            for uid in [None, Some(UID)] {
                let (registration, dra) = names("/var/lib/kubelet", driver, uid);
                assert!(is_dra_socket(&dra));
                assert!(belong_together(driver, &dra, &registration), "{dra} {registration}");
                let other = "11111111-55f1-4d0c-9d1b-0c1f7c0f7a11";
                for (of_driver, of_uid) in [(driver, Some(other)), ("other.example.com", uid)] {
                    let (registration, _) = names("/var/lib/kubelet", of_driver, of_uid);
                    assert!(!belong_together(driver, &dra, &registration), "{dra} {registration}");
                }
            }
        }
    }
}
