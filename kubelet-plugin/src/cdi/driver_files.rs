//! The files of the driver that its programs need in every container: libraries, tools, firmware, sockets.
//!
//! `nvidia-ctk cdi generate` knows them best, and its hooks also add the libraries to a container's `ld.so.cache`. It
//! can take half a minute, so its answer is cached on disk, by driver version. If a node doesn't have it, or it
//! fails, the files are searched ([`search`]), and the same hooks are run with the program that the plugin brings along.
//!
//! Only mounts, hooks and variables are taken from `nvidia-ctk`, never device nodes: which nodes a container gets
//! depends on its claims alone.

mod cache;
mod hooks;
mod nvidia_ctk;
mod search;

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ContainerEdits, Roots};
use tessera_journal::FileSystem;

/// What every container with a card gets of the driver. Contains no device nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverFiles {
    /// Mounts, hooks and variables.
    pub edits: ContainerEdits,
    /// How they were found.
    pub source: DriverFilesSource,
}

/// How the driver's files were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverFilesSource {
    /// `nvidia-ctk cdi generate`, now or at an earlier start with the same driver.
    NvidiaCtk,
    /// Our own search, because the node has no `nvidia-ctk` or it failed.
    Search,
}

/// Finds the files of the driver `version` (as the driver writes it, `580.95.05`). Takes up to a minute the first
/// time for a version, milliseconds afterwards.
///
/// `hook` is NVIDIA's program for hooks (`nvidia-cdi-hook`), at the same path on the host, for nodes without `nvidia-ctk`;
/// `cache` is the file for the answer of `nvidia-ctk`, which is searched below the driver root. Never fails: what is not
/// found is not mounted, and that is logged.
pub async fn find_driver_files(
    roots: &Roots,
    version: &str,
    hook: Option<&Path>,
    cache: &Path,
    file_system: Arc<dyn FileSystem>,
) -> DriverFiles {
    if let Some(tool) = nvidia_ctk::find(roots) {
        let key = cache::Key::new(&tool, version, roots);
        if let Some(edits) = cache::read(&*file_system, cache, &key) {
            return DriverFiles { edits, source: DriverFilesSource::NvidiaCtk };
        }
        match nvidia_ctk::generate(&tool, roots).await {
            Ok(edits) => {
                if let Err(error) = cache::write(&*file_system, cache, key, &edits) {
                    tracing::warn!(path = %cache.display(), %error,
                        "the driver's files are found but could not be remembered for the next start");
                }
                return DriverFiles { edits, source: DriverFilesSource::NvidiaCtk };
            }
            Err(error) => {
                tracing::warn!(tool = %tool.display(), %error,
                    "nvidia-ctk failed: falling back to a search for the driver's files");
            }
        }
    }
    let edits = search::search(roots, version, hook);
    if edits.mounts.is_empty() {
        tracing::warn!(driver_root = %roots.driver.display(), %version,
            "no files of the driver found: containers get device nodes, but no libcuda. Install nvidia-ctk on the \
             node, or check --driver-root");
    }
    DriverFiles { edits, source: DriverFilesSource::Search }
}

impl DriverFiles {
    /// The files that still exist. Some disappear after they were found, such as the socket of a stopped daemon, and
    /// a runtime refuses to start a container with a mount of a missing file.
    #[must_use]
    pub fn present(&self, roots: &Roots) -> Self {
        let mut present = self.clone();
        present.edits.mounts.retain(|mount| roots.from_host(Path::new(&mount.host_path)).exists());
        present
    }
}
