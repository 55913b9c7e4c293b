//! Finds the driver's files without `nvidia-ctk`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use tessera_nvml::{is_for_this_processor, resolve_below};

use super::hooks;
use crate::cdi::{ContainerEdits, Mount, Roots};

/// Default directories of dynamic loaders, in images of the two families of distributions. A library in either is
/// found without an `ld.so.cache` (written only by a hook of `nvidia-ctk`) and without `LD_LIBRARY_PATH` (which,
/// set by a spec, would replace the image's own).
const CONTAINER_LIBRARY_DIRECTORIES: &[&str] = &[
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
];
/// Tools of the driver (from NVIDIA's installer, and all tools mounted by `nvidia-ctk`).
const PROGRAMS: &[&str] = &[
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
];
const PROGRAM_DIRECTORIES: &[&str] = &[
    "usr/bin",
    "usr/local/bin",
    "opt/bin",
    "bin",
    "usr/local/nvidia/bin",
    "home/kubernetes/bin/nvidia/bin",
    "run/current-system/sw/bin",
];
/// Sockets of the driver's daemons.
const SOCKETS: &[&str] = &["nvidia-persistenced/socket", "nvidia-fabricmanager/socket"];

/// Searches the files of one driver version below the driver root: all libraries with this version in their names,
/// the tools, the firmware of the card's own processor, the sockets of running daemons.
///
/// With `hook`, the host's path of NVIDIA's program for hooks, the libraries are mounted at the host's paths, and the hooks of
/// `nvidia-ctk` are added ([`hooks`]). Otherwise they are mounted where loaders look without an
/// `ld.so.cache`: programs using `ldconfig -p` instead of loading a library will not find them. The configuration files of
/// graphics libraries are mounted by `nvidia-ctk` only.
pub(super) fn search(roots: &Roots, version: &str, hook: Option<&Path>) -> ContainerEdits {
    // A vGPU driver may call itself `550.54.15-grid`, but its files don't have the suffix.
    let version = version.split(['-', '+']).next().unwrap_or(version);
    let libraries = libraries(roots, version);
    let hook = hook.filter(|_| !libraries.is_empty() && hooks::are_possible(roots));
    let mut edits = hook.map(|hook| hooks::edits(roots, version, &libraries, hook)).unwrap_or_default();
    edits.mounts = match hook {
        Some(_) => {
            let files: BTreeSet<&PathBuf> = libraries.values().collect();
            let mount = |path: &PathBuf| {
                read_only(roots, path, hooks::in_container(roots, path).to_string_lossy().into_owned())
            };
            files.into_iter().map(mount).collect()
        }
        None => in_default_directories(roots, &libraries),
    };
    edits.mounts.extend(programs(roots, hook.is_some()));
    edits.mounts.extend(firmware(roots, version));
    edits.mounts.extend(sockets(roots));
    edits
}

/// The versions of the driver whose `libcuda` is below its root, in the order of their names. Blocks for the file system.
#[must_use]
pub fn cuda_versions(roots: &Roots) -> BTreeSet<String> {
    let directories = library_directories(roots);
    let names = directories.iter().filter_map(|directory| fs::read_dir(directory).ok());
    let names = names.flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    // `libcuda.so.1` is a link to one of them.
    names
        .filter_map(|name| {
            name.strip_prefix("libcuda.so.").filter(|version| version.contains('.')).map(str::to_owned)
        })
        .collect()
}

/// The driver's libraries by the names used by programs to load them, each with its file.
fn libraries(roots: &Roots, version: &str) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::<String, PathBuf>::new();
    let mut seen = BTreeSet::new();
    for directory in library_directories(roots) {
        // `/lib` is `/usr/lib` on most machines.
        let Ok(canonical) = directory.canonicalize() else { continue };
        if seen.insert(canonical) {
            libraries_of(roots, &directory, version, &mut found);
        }
    }
    found
}

/// The existing library directories.
fn library_directories(roots: &Roots) -> Vec<PathBuf> {
    let installed = roots.installed();
    installed.library_directories().filter_map(|directory| installed.find(directory)).collect()
}

fn in_default_directories(roots: &Roots, libraries: &BTreeMap<String, PathBuf>) -> Vec<Mount> {
    let mut mounts = Vec::new();
    for (name, path) in libraries {
        for directory in CONTAINER_LIBRARY_DIRECTORIES {
            mounts.push(read_only(roots, path, format!("{directory}/{name}")));
        }
    }
    mounts
}

/// The names used by programs to load the driver's libraries in one directory, each with its linked file.
fn libraries_of(roots: &Roots, directory: &Path, version: &str, found: &mut BTreeMap<String, PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut links = BTreeMap::<String, String>::new();
    let mut versioned = BTreeSet::<String>::new();
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !(name.starts_with("lib") && name.contains(".so")) {
            continue;
        }
        if is_of_version(&name, version) && entry.path().is_file() && is_for_this_processor(&entry.path()) {
            versioned.insert(name);
        } else if let Some(target) = fs::read_link(entry.path()).ok().as_deref().and_then(Path::file_name) {
            links.insert(name, target.to_string_lossy().into_owned());
        }
    }
    for name in &versioned {
        let path = directory.join(name);
        // A library loaded by another library of the driver by its full name has no links.
        found.entry(name.clone()).or_insert_with(|| path.clone());
    }
    for link in links.keys() {
        // `libcuda.so -> libcuda.so.1 -> libcuda.so.580.95.05`.
        let mut target = link;
        for _ in 0..3 {
            match links.get(target) {
                Some(next) => target = next,
                None => break,
            }
        }
        if versioned.contains(target) {
            let path = directory.join(target);
            found.entry(link.clone()).or_insert(path);
            continue;
        }
        // NixOS: each is an absolute link to a file in another directory.
        let below = directory.strip_prefix(&roots.driver).map(|directory| directory.join(link));
        let Some(file) = below.ok().and_then(|path| resolve_below(&roots.driver, &path).ok()) else {
            continue;
        };
        let Some(name) = file.file_name().and_then(|name| name.to_str()) else { continue };
        if is_of_version(name, version) && is_for_this_processor(&file) {
            found.entry(name.to_owned()).or_insert_with(|| file.clone());
            found.entry(link.clone()).or_insert_with(|| file.clone());
        }
    }
}

/// `libcuda.so.580.95.05`, of 580.95.05.
fn is_of_version(name: &str, version: &str) -> bool {
    name.split_once(".so.").is_some_and(|(_, suffix)| suffix == version)
}

/// The tools, in containers at `/usr/bin`, or with `in_place` at the host's path if in every `PATH`.
fn programs(roots: &Roots, in_place: bool) -> Vec<Mount> {
    let installed = roots.installed();
    let find = |name: &&str| {
        let named = installed.first.iter().map(PathBuf::as_path);
        let mut directories = named.chain(PROGRAM_DIRECTORIES.iter().map(Path::new));
        let found = |directory: &Path| installed.find(&directory.join(name)).filter(|path| path.is_file());
        let (directory, path) = directories.find_map(|directory| Some((directory, found(directory)?)))?;
        let is_in_path =
            ["usr/bin", "usr/local/bin", "bin"].iter().any(|known| directory == Path::new(known));
        let place = match in_place && is_in_path {
            true => hooks::in_container(roots, &path).to_string_lossy().into_owned(),
            false => format!("/usr/bin/{name}"),
        };
        Some(read_only(roots, &path, place))
    };
    PROGRAMS.iter().filter_map(find).collect()
}

fn firmware(roots: &Roots, version: &str) -> Vec<Mount> {
    for directory in ["lib/firmware/nvidia", "usr/lib/firmware/nvidia"] {
        let Ok(versions) = fs::read_dir(roots.driver.join(directory)) else { continue };
        let ours = versions.flatten().find(|entry| entry.file_name() == version);
        let Some(files) = ours.and_then(|entry| fs::read_dir(entry.path()).ok()) else { continue };
        let mut mounts: Vec<Mount> = files
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("gsp"))
            .map(|entry| {
                let container_path = roots.in_container(&entry.path()).to_string_lossy().into_owned();
                read_only(roots, &entry.path(), container_path)
            })
            .collect();
        mounts.sort_unstable_by(|one, other| one.host_path.cmp(&other.host_path));
        return mounts;
    }
    Vec::new()
}

fn sockets(roots: &Roots) -> Vec<Mount> {
    let find = |name: &&str| {
        let path = roots.driver.join("run").join(name);
        let is_socket = fs::metadata(&path).is_ok_and(|metadata| metadata.file_type().is_socket());
        is_socket.then(|| Mount {
            host_path: roots.on_host(&path).to_string_lossy().into_owned(),
            container_path: format!("/run/{name}"),
            options: ["nosuid", "nodev", "noexec", "rbind", "rprivate"].map(str::to_owned).to_vec(),
            kind: None,
        })
    };
    SOCKETS.iter().filter_map(find).collect()
}

fn read_only(roots: &Roots, path: &Path, container_path: String) -> Mount {
    Mount {
        host_path: roots.on_host(path).to_string_lossy().into_owned(),
        container_path,
        options: ["ro", "nosuid", "nodev", "rbind", "rprivate"].map(str::to_owned).to_vec(),
        kind: None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn elf(class: u8) -> Vec<u8> {
        let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        let mut header = b"\x7fELF".to_vec();
        header.resize(20, 0);
        header[4] = class;
        header[18..20].copy_from_slice(&machine.to_le_bytes());
        header
    }

    #[test]
    fn finds_what_belongs_to_the_version() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let library = root.join("usr/lib64");
        let firmware = root.join("lib/firmware/nvidia/580.95.05");
        for path in [&library, &root.join("usr/lib"), &firmware, &root.join("usr/bin")] {
            fs::create_dir_all(path).unwrap();
        }
        for name in ["libcuda.so.580.95.05", "libnvidia-glcore.so.580.95.05", "libcuda.so.570.1", "libc.so.6"]
        {
            fs::write(library.join(name), elf(2)).unwrap();
        }
        symlink("libcuda.so.580.95.05", library.join("libcuda.so.1")).unwrap();
        symlink("libcuda.so.1", library.join("libcuda.so")).unwrap();
        symlink("libcuda.so.570.1", library.join("libcuda.so.old")).unwrap();
        fs::write(root.join("usr/lib/libcuda.so.580.95.05"), elf(1)).unwrap();
        fs::write(root.join("usr/bin/nvidia-smi"), "").unwrap();
        fs::write(firmware.join("gsp_ga10x.bin"), "").unwrap();
        fs::create_dir_all(root.join("run/nvidia-persistenced")).unwrap();
        let _socket = UnixListener::bind(root.join("run/nvidia-persistenced/socket")).unwrap();

        let roots = Roots { driver: root.to_owned(), host_driver: "/host".into(), ..Roots::default() };
        let edits = search(&roots, "580.95.05", None);
        let mounts: Vec<_> = edits
            .mounts
            .iter()
            .filter(|mount| !mount.container_path.starts_with("/usr/lib/"))
            .map(|mount| (mount.host_path.as_str(), mount.container_path.as_str()))
            .collect();
        assert_eq!(
            mounts,
            [
                ("/host/usr/lib64/libcuda.so.580.95.05", "/usr/lib64/libcuda.so"),
                ("/host/usr/lib64/libcuda.so.580.95.05", "/usr/lib64/libcuda.so.1"),
                ("/host/usr/lib64/libcuda.so.580.95.05", "/usr/lib64/libcuda.so.580.95.05"),
                ("/host/usr/lib64/libnvidia-glcore.so.580.95.05", "/usr/lib64/libnvidia-glcore.so.580.95.05"),
                ("/host/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
                (
                    "/host/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin",
                    "/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin"
                ),
                ("/host/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/socket"),
            ]
        );
        let multiarch = edits.mounts.iter().filter(|mount| mount.container_path.starts_with("/usr/lib/"));
        assert_eq!(multiarch.count(), 4);
        assert!(edits.device_nodes.is_empty());

        // Without the host's ldconfig no hook can be run; with ldconfig everything is mounted at the host's path.
        let hook = Path::new("/state/nvidia-cdi-hook");
        assert_eq!(search(&roots, "580.95.05", Some(hook)), edits);
        fs::create_dir_all(root.join("sbin")).unwrap();
        fs::write(root.join("sbin/ldconfig"), "").unwrap();
        let edits = search(&roots, "580.95.05", Some(hook));
        let places: Vec<&str> = edits.mounts.iter().map(|mount| mount.container_path.as_str()).collect();
        assert_eq!(
            places[..3],
            [
                "/usr/lib64/libcuda.so.580.95.05",
                "/usr/lib64/libnvidia-glcore.so.580.95.05",
                "/usr/bin/nvidia-smi"
            ]
        );
        assert_eq!(edits.env, ["NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"]);
        let hooks: Vec<String> = edits.hooks.iter().map(|hook| hook.args[1..].join(" ")).collect();
        assert_eq!(
            hooks,
            [
                "create-symlinks --link libcuda.so.1::/usr/lib64/libcuda.so --link libcuda.so.580.95.05::/usr/lib64/libcuda.so.1",
                "enable-cuda-compat --host-driver-version=580.95.05",
                "update-ldcache --ldconfig-path /host/sbin/ldconfig --folder /usr/lib64",
                "disable-device-node-modification",
            ]
        );
        assert!(edits.hooks.iter().all(|hook| hook.path == "/state/nvidia-cdi-hook"));
    }

    /// Bottlerocket's by a value, and NixOS, whose files are absolute links.
    #[test]
    fn libraries_elsewhere_and_behind_absolute_links() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let hosts = |roots: &Roots| {
            let mounts = search(roots, "580.95.05", None).mounts.into_iter();
            mounts.map(|mount| (mount.host_path, mount.container_path)).collect::<BTreeSet<_>>()
        };
        let roots = Roots { driver: root.clone(), host_driver: "/".into(), ..Roots::default() };
        let (vendor, programs) = (root.join("opt/vendor/lib"), root.join("opt/vendor/bin"));
        fs::create_dir_all(&vendor).unwrap();
        fs::create_dir_all(&programs).unwrap();
        fs::write(vendor.join("libcuda.so.580.95.05"), elf(2)).unwrap();
        symlink("libcuda.so.580.95.05", vendor.join("libcuda.so.1")).unwrap();
        fs::write(programs.join("nvidia-smi"), "").unwrap();
        assert!(hosts(&roots).is_empty());
        let driver_paths = vec!["opt/vendor/lib".into(), "opt/vendor/bin".into()];
        let elsewhere = hosts(&Roots { driver_paths, ..roots.clone() });
        let has = |found: &BTreeSet<(String, String)>, host: &str, container: &str| {
            assert!(found.contains(&(host.to_owned(), container.to_owned())), "{container} in {found:?}");
        };
        has(&elsewhere, "/opt/vendor/lib/libcuda.so.580.95.05", "/usr/lib64/libcuda.so.1");
        has(&elsewhere, "/opt/vendor/bin/nvidia-smi", "/usr/bin/nvidia-smi");

        let (store, drivers) = (root.join("nix/store/n/lib"), root.join("nix/store/g/lib"));
        for made in [&store, &drivers, &root.join("run")] {
            fs::create_dir_all(made).unwrap();
        }
        fs::write(store.join("libcuda.so.580.95.05"), elf(2)).unwrap();
        symlink("libcuda.so.580.95.05", store.join("libcuda.so.1")).unwrap();
        for name in ["libcuda.so.580.95.05", "libcuda.so.1"] {
            symlink(format!("/nix/store/n/lib/{name}"), drivers.join(name)).unwrap();
        }
        symlink("/nix/store/g", root.join("run/opengl-driver")).unwrap();
        let found = hosts(&roots);
        for name in ["libcuda.so.580.95.05", "libcuda.so.1"] {
            has(&found, "/nix/store/n/lib/libcuda.so.580.95.05", &format!("/usr/lib64/{name}"));
        }
        assert_eq!(cuda_versions(&roots), BTreeSet::from(["580.95.05".to_owned()]));
    }

    #[test]
    fn an_empty_root_gives_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let roots = Roots { driver: directory.path().to_owned(), ..Roots::default() };
        assert!(search(&roots, "580.95.05", None).is_empty());
    }
}
