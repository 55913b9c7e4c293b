//! The driver's files, searched once each time the driver library is opened.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tessera_nvml::{DriverCalls, Nvml};
use tokio::sync::{OnceCell, watch};

use crate::cdi::{self, DriverFiles, DriverFilesSource, Roots, find_driver_files};
use crate::prepare::{DriverFilesState, PrepareError, PrepareOptions};

/// Name of NVIDIA's program for hooks.
const HOOK: &str = "nvidia-cdi-hook";

/// The driver's files, searched once each time the driver library is opened.
#[derive(Default)]
pub(in crate::prepare) struct Files {
    latest: Mutex<Option<Found>>,
    /// The versions of the driver whose files were there when claims were refused; `None` while they are not.
    refused: Mutex<Option<BTreeSet<String>>>,
}

struct Found {
    /// Weak, so the library is not kept open when due to be reopened.
    of: Weak<dyn Nvml>,
    files: Arc<OnceCell<Arc<DriverFiles>>>,
}

impl Files {
    /// Forgets the result of a search, so a failed tool is run again and later files are found.
    pub fn forget_search(&self) {
        self.forget(|files| files.source == DriverFilesSource::Search);
    }

    /// Whether some found file is gone, or the files have changed since claims were refused. Blocks for the file system.
    pub fn are_outdated(&self, roots: &Roots) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if refused.is_some_and(|found| found != cdi::cuda_versions(roots)) {
            return true;
        }
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let files = latest.as_ref().and_then(|found| found.files.get().cloned());
        drop(latest);
        files.is_some_and(|files| !files.is_whole(roots))
    }

    fn forget(&self, is_outdated: impl FnOnce(&DriverFiles) -> bool) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let files = latest.as_ref().and_then(|found| found.files.get());
        if files.is_some_and(|files| is_outdated(files)) {
            *latest = None;
        }
    }

    /// The files of the driver behind `nvml`. The first caller searches, the others wait for the result. The search is repeated
    /// after a library or the program of a hook has gone.
    ///
    /// # Errors
    /// [`PrepareError::DriverFiles`] if the files of this driver are not on the node, [`PrepareError::Driver`] and
    /// [`PrepareError::NotAnswering`] if the driver doesn't report its version.
    pub async fn of(
        &self,
        nvml: &Arc<dyn Nvml>,
        calls: &DriverCalls,
        options: &PrepareOptions,
    ) -> Result<Arc<DriverFiles>, PrepareError> {
        self.forget(|files| !files.is_whole(&options.roots));
        let files = self.found(nvml, calls, options).await?;
        let (missing, found) = if files.has_cuda() {
            (None, None)
        } else {
            // The next call searches again.
            self.forget(|latest| std::ptr::eq(latest, &*files));
            let version = driver_version(nvml, calls).await?;
            let root = options.roots.host_driver.display().to_string();
            let found = cdi::cuda_versions(&options.roots);
            (Some(PrepareError::DriverFiles { version, root, found: found.clone() }), Some(found))
        };
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = found;
        let state = DriverFilesState {
            missing: missing.as_ref().map(ToString::to_string),
            unsafe_tool: files.unsafe_tool.clone(),
        };
        tell(&options.driver_files, state);
        missing.map_or(Ok(files), Err)
    }

    async fn found(
        &self,
        nvml: &Arc<dyn Nvml>,
        calls: &DriverCalls,
        options: &PrepareOptions,
    ) -> Result<Arc<DriverFiles>, PrepareError> {
        let cell = {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            match &*latest {
                Some(found) if found.of.ptr_eq(&Arc::downgrade(nvml)) => found.files.clone(),
                _ => {
                    let files = Arc::<OnceCell<_>>::default();
                    *latest = Some(Found { of: Arc::downgrade(nvml), files: files.clone() });
                    files
                }
            }
        };
        let files = cell.get_or_try_init(|| async {
            let version = driver_version(nvml, calls).await?;
            let cache = options.state_directory.join("driver-files.json");
            let hook = installed_hook(options).await;
            let file_system = options.file_system.clone();
            let files =
                find_driver_files(&options.roots, &version, hook.as_deref(), &cache, file_system).await;
            let files = files.without_hooks(&options.disabled_hooks);
            tracing::info!(version, source = ?files.source, mounts = files.edits.mounts.len(),
                hooks = files.edits.hooks.len(), "looked for the driver's files");
            Ok::<_, PrepareError>(Arc::new(files))
        });
        files.await.cloned()
    }
}

async fn driver_version(nvml: &Arc<dyn Nvml>, calls: &DriverCalls) -> Result<String, PrepareError> {
    let driver = nvml.clone();
    calls.ask_driver(move || driver.driver_version()).await?.map_err(PrepareError::Driver)
}

/// Publishes a changed state, with an entry in the log.
fn tell(driver_files: &watch::Sender<DriverFilesState>, state: DriverFilesState) {
    driver_files.send_if_modified(|told| {
        if *told == state {
            return false;
        }
        match (&told.missing, &state.missing) {
            (_, Some(missing)) => tracing::error!("no claim can be prepared: {missing}"),
            (Some(_), None) => tracing::info!("the driver's files are there again"),
            (None, None) => {}
        }
        *told = state;
        true
    });
}

/// The program for hooks in [`PrepareOptions::hook_directory`]; `None` if there is none. The container runtime may be running an
/// earlier one, so the file is replaced, never overwritten.
async fn installed_hook(options: &PrepareOptions) -> Option<PathBuf> {
    let source = options.cdi_hook.clone()?;
    let target = options.hook_directory.join(HOOK);
    let install = move || {
        fs::create_dir_all(target.parent().unwrap_or(&target))?;
        let bytes = fs::read(&source)?;
        if fs::read(&target).is_ok_and(|installed| installed == bytes) {
            return Ok(target);
        }
        let mut file = tempfile::Builder::new()
            .prefix(HOOK)
            .permissions(fs::Permissions::from_mode(0o755))
            .tempfile_in(target.parent().unwrap_or(&target))?;
        file.write_all(&bytes)?;
        file.persist(&target)?;
        Ok::<_, io::Error>(target)
    };
    match tokio::task::spawn_blocking(install).await.map_err(io::Error::other).flatten() {
        Ok(path) => Some(path),
        Err(error) => {
            tracing::warn!(%error, "cannot install {HOOK}: on a node without nvidia-ctk containers get no ld.so.cache");
            None
        }
    }
}
