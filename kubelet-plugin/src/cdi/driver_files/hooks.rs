//! The same edits as from `nvidia-ctk cdi generate`, with its hook program, `nvidia-cdi-hook`, but without `nvidia-ctk`:
//! libraries at their places under the driver's root, links, the libraries of a newer CUDA in the image, `ld.so.cache`.
//!
//! The rules are from `pkg/nvcdi` and `internal/discover` of nvidia-container-toolkit 1.19, and are compared with its
//! answer for every emulated machine (`tests/end-to-end/tests/strangers.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::cdi::{ContainerEdits, Hook, Roots};

/// Where the host's `ldconfig` is looked for. Without one `ld.so.cache` cannot be written, and the container would not start.
const LDCONFIG: [&str; 4] =
    ["sbin/ldconfig.real", "usr/sbin/ldconfig.real", "sbin/ldconfig", "usr/sbin/ldconfig"];

/// The program's name as its first argument, from which the program finds its role.
const PROGRAM: &str = "nvidia-cdi-hook";

/// Whether the hooks can be run on this host.
pub(super) fn are_possible(roots: &Roots) -> bool {
    ldconfig(roots).is_some()
}

fn ldconfig(roots: &Roots) -> Option<PathBuf> {
    LDCONFIG.iter().map(|path| roots.driver.join(path)).find(|path| path.is_file())
}

/// Hooks and variables for the driver's `libraries` (by the names used by programs to load them, each with its file);
/// `hook` is the program's path on the host.
pub(super) fn edits(
    roots: &Roots,
    version: &str,
    libraries: &BTreeMap<String, PathBuf>,
    hook: &Path,
) -> ContainerEdits {
    let run = |arguments: Vec<String>| Hook {
        hook_name: "createContainer".to_owned(),
        path: hook.display().to_string(),
        args: std::iter::once(PROGRAM.to_owned()).chain(arguments).collect(),
        env: vec!["NVIDIA_CTK_DEBUG=false".to_owned()],
        timeout: None,
    };
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let folder =
        |path: &PathBuf| text(in_container(roots, path).parent().map(Path::to_owned).unwrap_or_default());
    let mut hooks = Vec::new();
    let links = links(roots, version, libraries);
    if !links.is_empty() {
        let links = links.into_iter().flat_map(|link| ["--link".to_owned(), link]);
        hooks.push(run(std::iter::once("create-symlinks".to_owned()).chain(links).collect()));
    }
    hooks.push(run(vec!["enable-cuda-compat".to_owned(), format!("--host-driver-version={version}")]));
    let folders: BTreeSet<String> = libraries.values().map(folder).collect();
    let folders = folders.into_iter().flat_map(|folder| ["--folder".to_owned(), folder]);
    // The program finds the host's own by itself. The path is used literally: without the `@` of the toolkit's configuration.
    let elsewhere = ldconfig(roots).filter(|_| roots.host_driver != Path::new("/"));
    let elsewhere = elsewhere.map(|path| ["--ldconfig-path".to_owned(), text(roots.on_host(&path))]);
    let arguments = std::iter::once("update-ldcache".to_owned());
    hooks.push(run(arguments.chain(elsewhere.into_iter().flatten()).chain(folders).collect()));
    hooks.push(run(vec!["disable-device-node-modification".to_owned()]));
    let cuda = libraries.get(&format!("libcuda.so.{version}"));
    let env = cuda.map(|path| format!("NVIDIA_CTK_LIBCUDA_DIR={}", folder(path))).into_iter().collect();
    ContainerEdits { env, hooks, ..ContainerEdits::default() }
}

/// The links to make: `<target>::<path>`. The host's, and some wrongly expected by programs.
fn links(roots: &Roots, version: &str, libraries: &BTreeMap<String, PathBuf>) -> BTreeSet<String> {
    let mut links = BTreeSet::new();
    for (name, path) in libraries {
        let in_container = in_container(roots, path);
        let Some(file) = path.file_name().map(|file| file.to_string_lossy().into_owned()) else { continue };
        let mut link = |target: &str, name: &str| {
            links.insert(format!("{target}::{}", in_container.with_file_name(name).display()));
        };
        if *name == file {
            match file.strip_suffix(version).and_then(|file| file.strip_suffix('.')) {
                Some("libcuda.so") => link("libcuda.so.1", "libcuda.so"),
                Some("libGLX_nvidia.so") => link(&file, "libGLX_indirect.so.0"),
                Some("libnvidia-opticalflow.so") => {
                    link("libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so")
                }
                _ => {}
            }
            continue;
        }
        match name.split_once(".so") {
            // Through the name used by programs to load the library, if any.
            Some((_, "")) => {
                let loaded = libraries.keys().find(|other| is_loaded_by(other, name));
                link(loaded.unwrap_or(&file), name);
            }
            Some((_, number)) if is_number(number) => link(&file, name),
            _ => {}
        }
    }
    links
}

/// Whether `name` is `library` with a number: `libcuda.so.1` of `libcuda.so`.
fn is_loaded_by(name: &str, library: &str) -> bool {
    name.strip_prefix(library).is_some_and(is_number)
}

/// `.1`
fn is_number(suffix: &str) -> bool {
    suffix
        .strip_prefix('.')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The place of a file in containers: the one under the driver's root, with the links of directories followed.
pub(super) fn in_container(roots: &Roots, path: &Path) -> PathBuf {
    let real = path.parent().and_then(|directory| directory.canonicalize().ok());
    let root = roots.driver.canonicalize().unwrap_or_else(|_| roots.driver.clone());
    let below = real.as_deref().and_then(|real| real.strip_prefix(&root).ok());
    match (below, path.file_name()) {
        (Some(below), Some(name)) => Path::new("/").join(below).join(name),
        _ => roots.in_container(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_those_of_the_host_and_those_that_programs_expect() {
        let roots = Roots::default();
        let directory = Path::new("/no/such/directory");
        let libraries: BTreeMap<String, PathBuf> = [
            ("libcuda.so.580.1", "libcuda.so.580.1"),
            ("libcuda.so.1", "libcuda.so.580.1"),
            ("libnvidia-ml.so.580.1", "libnvidia-ml.so.580.1"),
            ("libnvidia-ml.so.1", "libnvidia-ml.so.580.1"),
            ("libnvidia-ml.so", "libnvidia-ml.so.580.1"),
            ("libGLX_nvidia.so.580.1", "libGLX_nvidia.so.580.1"),
            ("libcuda.so.1.old", "libcuda.so.580.1"),
        ]
        .map(|(name, file)| (name.to_owned(), directory.join(file)))
        .into();
        let links: Vec<String> = links(&roots, "580.1", &libraries).into_iter().collect();
        assert_eq!(
            links,
            [
                "libGLX_nvidia.so.580.1::/no/such/directory/libGLX_indirect.so.0",
                "libcuda.so.1::/no/such/directory/libcuda.so",
                "libcuda.so.580.1::/no/such/directory/libcuda.so.1",
                "libnvidia-ml.so.1::/no/such/directory/libnvidia-ml.so",
                "libnvidia-ml.so.580.1::/no/such/directory/libnvidia-ml.so.1",
            ]
        );
    }
}
