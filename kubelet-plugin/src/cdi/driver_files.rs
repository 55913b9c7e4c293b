//! The files of the driver needed by its programs in every container: libraries, tools, firmware, sockets.
//!
//! `nvidia-ctk cdi generate` knows them best, and its hooks also add the libraries to a container's `ld.so.cache`. The tool
//! can take half a minute, so its answer is cached on disk, by driver version. If the tool is missing,
//! fails or is of a version with unsafe hooks, the files are searched ([`search`]), and the same hooks are run with the
//! program shipped with the plugin.
//!
//! Only mounts, hooks and variables are taken from `nvidia-ctk`, never device nodes: a container's device nodes
//! depend on its claims alone.

mod cache;
mod hooks;
mod nvidia_ctk;
mod search;

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ContainerEdits, Roots};
use nvidia_ctk::NvidiaCtkError;
use tessera_journal::FileSystem;

pub use search::cuda_versions;

/// The driver's part of every container with a card. Contains no device nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverFiles {
    /// Mounts, hooks and variables.
    pub edits: ContainerEdits,
    /// How they were found.
    pub source: DriverFilesSource,
    /// The version of an `nvidia-ctk` left unused because its hooks are unsafe.
    pub unsafe_tool: Option<String>,
}

/// How the driver's files were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverFilesSource {
    /// `nvidia-ctk cdi generate`, now or at an earlier start with the same driver.
    NvidiaCtk,
    /// Our own search, because `nvidia-ctk` is missing on the node or failed, or its hooks are unsafe.
    Search,
}

/// Finds the files of the driver `version` (as the driver writes it, `580.95.05`). Takes up to a minute the first
/// time for a version, milliseconds afterwards.
///
/// `hook` is NVIDIA's program for hooks (`nvidia-cdi-hook`), at the same path on the host, for nodes without `nvidia-ctk`;
/// `cache` is the file for the answer of `nvidia-ctk`, which is searched below the driver root. Never fails: files not
/// found are not mounted ([`DriverFiles::has_cuda`]).
pub async fn find_driver_files(
    roots: &Roots,
    version: &str,
    hook: Option<&Path>,
    cache: &Path,
    file_system: Arc<dyn FileSystem>,
) -> DriverFiles {
    let mut unsafe_tool = None;
    if let Some(tool) = nvidia_ctk::find(roots) {
        match by_tool(&tool, roots, version, cache, &*file_system).await {
            Ok(edits) => {
                let found = DriverFiles { edits, source: DriverFilesSource::NvidiaCtk, unsafe_tool: None };
                // The tool does not search these directories.
                let searches = !found.has_cuda() && !roots.driver_paths.is_empty();
                if !searches {
                    return found;
                }
                tracing::warn!(tool = %tool.display(),
                    "nvidia-ctk finds no libcuda: falling back to a search for the driver's files, in --driver-paths first");
            }
            Err(error) => {
                tracing::warn!(tool = %tool.display(), %error,
                    "nvidia-ctk is not used: falling back to a search for the driver's files");
                if let NvidiaCtkError::Unsafe(version) = error {
                    unsafe_tool = Some(version);
                }
            }
        }
    }
    let edits = search::search(roots, version, hook);
    DriverFiles { edits, source: DriverFilesSource::Search, unsafe_tool }
}

/// The tool's answer, from now or an earlier start.
async fn by_tool(
    tool: &Path,
    roots: &Roots,
    version: &str,
    cache: &Path,
    file_system: &dyn FileSystem,
) -> Result<ContainerEdits, NvidiaCtkError> {
    nvidia_ctk::refuse_unsafe(tool).await?;
    let key = cache::Key::new(tool, version, roots);
    if let Some(edits) = cache::read(file_system, cache, &key).filter(|edits| is_whole(edits, roots)) {
        return Ok(edits);
    }
    let edits = nvidia_ctk::generate(tool, roots).await?;
    if let Err(error) = cache::write(file_system, cache, key, &edits) {
        tracing::warn!(path = %cache.display(), %error,
            "the driver's files are found but could not be remembered for the next start");
    }
    Ok(edits)
}

/// Whether all libraries and hook programs exist. Sockets come and go with their daemons.
fn is_whole(edits: &ContainerEdits, roots: &Roots) -> bool {
    let is_there = |path: &str| roots.from_host(Path::new(path)).exists();
    let libraries = edits.mounts.iter().map(|mount| &*mount.host_path).filter(|path| is_library(path));
    libraries.chain(edits.hooks.iter().map(|hook| &*hook.path)).all(is_there)
}

fn is_library(path: &str) -> bool {
    file_name(path).contains(".so")
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

impl DriverFiles {
    /// The files still present. Some disappear later, such as the socket of a stopped daemon, and
    /// a runtime refuses to start a container with a mount of a missing file.
    #[must_use]
    pub fn present(&self, roots: &Roots) -> Self {
        let mut present = self.clone();
        present.edits.mounts.retain(|mount| roots.from_host(Path::new(&mount.host_path)).exists());
        present
    }

    /// Whether all libraries and hook programs are still present. Blocks for the file system.
    #[must_use]
    pub fn is_whole(&self, roots: &Roots) -> bool {
        is_whole(&self.edits, roots)
    }

    /// Whether CUDA's library, without which no program can use a card, is among them.
    #[must_use]
    pub fn has_cuda(&self) -> bool {
        self.edits.mounts.iter().any(|mount| file_name(&mount.host_path).starts_with("libcuda.so"))
    }

    /// Takes out the hooks of these names, as `nvidia-ctk cdi generate --disable-hook` does: `update-ldcache`.
    #[must_use]
    pub fn without_hooks(mut self, names: &[String]) -> Self {
        self.edits.hooks.retain(|hook| {
            // `nvidia-cdi-hook update-ldcache`, or from older tools `nvidia-ctk hook update-ldcache`.
            let name = hook.args.iter().skip(1).find(|argument| *argument != "hook");
            !name.is_some_and(|name| names.contains(name))
        });
        self
    }
}
