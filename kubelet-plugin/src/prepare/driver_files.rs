//! The driver's files, searched once each time the driver library is opened.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tessera_nvml::Nvml;
use tokio::sync::OnceCell;

use super::{PrepareError, PrepareOptions};
use crate::cdi::{DriverFiles, DriverFilesSource, find_driver_files};
use tessera_nvml::DriverCalls;

/// Name of NVIDIA's program for hooks.
const HOOK: &str = "nvidia-cdi-hook";

/// The driver's files, searched once each time the driver library is opened.
#[derive(Default)]
pub(super) struct Files {
    latest: Mutex<Option<Found>>,
}

struct Found {
    /// Not to keep the library open when it is to be opened anew.
    of: Weak<dyn Nvml>,
    files: Arc<OnceCell<Arc<DriverFiles>>>,
}

impl Files {
    /// Forgets the result of a search, so that a failed tool is run again and later files are found.
    pub(super) fn forget_search(&self) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let files = latest.as_ref().and_then(|found| found.files.get());
        if files.is_some_and(|files| files.source == DriverFilesSource::Search) {
            *latest = None;
        }
    }

    /// The files of the driver that `nvml` belongs to. The first caller searches, the others wait for it.
    ///
    /// # Errors
    /// [`PrepareError::Driver`] and [`PrepareError::NotAnswering`] if the driver doesn't report its version.
    pub(super) async fn of(
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
            let driver = nvml.clone();
            let version = calls.ask_driver(move || driver.driver_version()).await?;
            let version = version.map_err(PrepareError::Driver)?;
            let cache = options.state_directory.join("driver-files.json");
            let hook = installed_hook(options).await;
            let files = find_driver_files(
                &options.roots,
                &version,
                hook.as_deref(),
                &cache,
                options.file_system.clone(),
            )
            .await;
            tracing::info!(version, source = ?files.source, mounts = files.edits.mounts.len(),
                hooks = files.edits.hooks.len(), "driver files found");
            Ok(Arc::new(files))
        });
        files.await.cloned()
    }
}

/// The program for hooks in the plugin's own directory, where the host sees it at the same path; `None` if there is none. The
/// container runtime may be running an earlier one, so it is replaced, never overwritten.
async fn installed_hook(options: &PrepareOptions) -> Option<PathBuf> {
    let source = options.cdi_hook.clone()?;
    let target = options.state_directory.join(HOOK);
    let install = move || {
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
