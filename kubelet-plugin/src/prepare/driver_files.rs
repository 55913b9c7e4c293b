//! The driver's files, searched once each time the driver library is opened.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tessera_nvml::Nvml;
use tokio::sync::OnceCell;

use super::{PrepareError, PrepareOptions};
use crate::cdi::{DriverFiles, DriverFilesSource, find_driver_files};
use tessera_nvml::DriverCalls;

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
            let files =
                find_driver_files(&options.roots, &version, &cache, options.file_system.clone()).await;
            tracing::info!(version, source = ?files.source, mounts = files.edits.mounts.len(),
                hooks = files.edits.hooks.len(), "driver files found");
            Ok(Arc::new(files))
        });
        files.await.cloned()
    }
}
