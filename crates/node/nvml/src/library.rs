mod card;
mod events;
mod functions;
mod gpm;
mod handles;
mod health;
mod links;
mod mig;
mod telemetry;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings as sys;

use crate::card::{CardReadings, Identity, Memory, Utilization};
use crate::compute_mode::ComputeMode;
use crate::driver_root::DriverRoot;
use crate::driver_version::{CudaVersion, DriverVersion, MINIMUM_DRIVER_VERSION};
use crate::elf::is_cut_short;
use crate::error::{NvmlError, Reading};
use crate::event::{Event, EventWatch};
use crate::gpm::GpmSample;
use crate::health::HealthReadings;
use crate::mig::{ComputeInstanceProfile, MigModeSwitch};
use crate::nvml::Nvml;
use crate::open_error::OpenError;
use crate::pair::{PairReadings, PeerToPeer};
use crate::process::{Process, ProcessKind};
use crate::telemetry::CardTelemetry;
use crate::{CommonAncestor, ComputeInstance, GpuInstance, GpuInstanceProfile, Placement};
use functions::{Functions, Handle};
use handles::Handles;
use mig::Profiles;
use tessera_api::PciBusId;

/// The NVIDIA driver's own library, started.
///
/// Cheap to clone; the driver is shut down when the last clone and the last [`EventWatch`] are gone. The library
/// itself is never unloaded, because its threads and thread-local destructors may remain.
#[derive(Clone)]
pub struct Library {
    session: Arc<Session>,
}

/// The time from `nvmlInit_v2` to `nvmlShutdown`.
struct Session {
    path: PathBuf,
    functions: Functions,
    handles: Handles,
    profiles: Profiles,
    /// The session began while an earlier one was open, so `nvmlInit_v2` did not look for cards.
    began_beside_another: bool,
}

/// Number of open sessions in this process, by the library's file.
static SESSIONS: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());

/// Interval for checking whether an earlier session has ended.
const LOOK: Duration = Duration::from_millis(20);

fn sessions() -> MutexGuard<'static, BTreeMap<PathBuf, usize>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Library {
    /// As [`Library::open_below`], but waits at most `patience` for this process's earlier sessions with the same library to
    /// end: with an open session, `nvmlInit_v2` only counts the new one, and cards added since stay unknown. Blocks.
    ///
    /// # Errors
    /// As [`Library::open_below`].
    pub fn open_anew_below(driver_root: &DriverRoot, patience: Duration) -> Result<Self, OpenError> {
        let path = driver_root.find_library()?;
        is_closed_within(&path, patience);
        let library = Self::open(&path)?;
        if library.session.began_beside_another {
            tracing::warn!(
                "calls of the driver have not returned since it was opened before: cards that came meanwhile are not seen \
                 until they do"
            );
        }
        Ok(library)
    }

    /// Waits at most `patience` until no session of this process with the library below the driver's root is open, so the
    /// process has no card open either. Returns whether all are closed. Blocks.
    #[must_use]
    pub fn is_closed_within(driver_root: &DriverRoot, patience: Duration) -> bool {
        driver_root.find_library().map_or(true, |path| is_closed_within(&path, patience))
    }

    /// Loads and starts the library at `path`.
    ///
    /// # Errors
    /// [`OpenError`]: the library does not load, does not start, finds no card or is too old.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let path = versioned_name(path);
        if is_cut_short(&path) {
            return Err(OpenError::CutShort { path });
        }
        let functions =
            Functions::load(&path).map_err(|source| OpenError::NotLoadable { path: path.clone(), source })?;
        functions.init().map_err(|error| not_started(&path, error))?;
        let began_beside_another = {
            let mut sessions = sessions();
            let open = sessions.entry(path.clone()).or_default();
            *open += 1;
            *open > 1
        };
        let (handles, profiles) = (Handles::default(), Profiles::default());
        let session = Session { path, functions, handles, profiles, began_beside_another };
        if session.functions.count().map_err(|error| not_started(&session.path, error))? == 0 {
            return Err(OpenError::NoCards { path: session.path.clone() });
        }
        let library = Library { session: Arc::new(session) };
        match library.driver_version().map(|text| text.parse::<DriverVersion>()) {
            Ok(Ok(found)) if found < MINIMUM_DRIVER_VERSION => {
                return Err(OpenError::TooOld { path: library.session.path.clone(), found });
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn_of_version(&error),
            Err(error) => warn_of_version(&error),
        }
        Ok(library)
    }

    /// Finds the library below the root of the driver's installation, loads and starts it.
    ///
    /// # Errors
    /// [`OpenError`]: no library found, or as for [`Library::open`].
    pub fn open_below(driver_root: &Path) -> Result<Self, OpenError> {
        Self::open(&DriverRoot::from(driver_root).find_library()?)
    }

    /// The loaded file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.session.path
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("path", &self.session.path).finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(error) = self.functions.shutdown() {
            tracing::debug!(%error, "the driver library did not shut down");
        }
        // Only now: a session still shutting down would be counted.
        let mut sessions = sessions();
        if let Some(open) = sessions.get_mut(&self.path) {
            *open -= 1;
            if *open == 0 {
                sessions.remove(&self.path);
            }
        }
    }
}

/// Waits at most `patience` until no session with the library at `path` is open, and returns whether all are closed.
fn is_closed_within(path: &Path, patience: Duration) -> bool {
    let (name, since) = (versioned_name(path), Instant::now());
    loop {
        let is_closed = !sessions().contains_key(&name);
        if is_closed || since.elapsed() > patience {
            return is_closed;
        }
        thread::sleep(LOOK);
    }
}

/// Resolves `libnvidia-ml.so.1` to `libnvidia-ml.so.580.95.05`: the loader caches libraries by name, so after a
/// driver upgrade the link's name would give the old library.
fn versioned_name(path: &Path) -> PathBuf {
    match path.read_link() {
        Ok(target) if target.file_name().is_some_and(|name| name == target.as_os_str()) => {
            path.with_file_name(target)
        }
        _ => path.to_owned(),
    }
}

fn not_started(path: &Path, error: NvmlError) -> OpenError {
    let path = path.to_owned();
    match error {
        NvmlError::Call { code: sys::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND, .. } => {
            OpenError::NoCards { path }
        }
        error => OpenError::NotStarted { path, error },
    }
}

/// The processes of all kinds on a card, by process id.
fn processes(functions: &Functions, card: Handle) -> Reading<Vec<Process>> {
    let lists = [ProcessKind::Compute, ProcessKind::Graphics, ProcessKind::Mps]
        .map(|kind| NvmlError::reading(functions.processes(card, kind)));
    let mut all = None;
    for list in lists {
        if let Some(list) = list? {
            all.get_or_insert_with(Vec::new).extend(list);
        }
    }
    if let Some(all) = &mut all {
        all.sort_by_key(|process| (process.pid, process.kind));
    }
    Ok(all)
}

impl Nvml for Library {
    fn identify(&self, address: PciBusId) -> Result<Identity, NvmlError> {
        let Session { functions, handles, .. } = &*self.session;
        let handle = handles.get(functions, address)?;
        Ok(Identity {
            index: functions.index(handle)?,
            minor: functions.minor(handle)?,
            uuid: functions.uuid(handle)?,
            mig_mode: NvmlError::reading(functions.mig_mode(handle))?.map(|mode| mode.current),
        })
    }

    fn is_outdated(&self) -> bool {
        self.session.began_beside_another && sessions().get(&self.session.path) == Some(&1)
    }

    fn driver_version(&self) -> Result<String, NvmlError> {
        self.session.functions.driver_version()
    }

    fn cuda_version(&self) -> Result<CudaVersion, NvmlError> {
        self.session.functions.cuda_version().map(CudaVersion::from_number)
    }

    fn accepts_confidential_work(&self) -> Reading<bool> {
        let functions = &self.session.functions;
        match NvmlError::reading(functions.is_in_confidential_mode())? {
            Some(true) => NvmlError::reading(functions.gpus_are_ready()),
            Some(false) | None => Ok(None),
        }
    }

    fn addresses(&self) -> Result<Vec<Result<PciBusId, NvmlError>>, NvmlError> {
        let found = Mutex::new(BTreeMap::new());
        self.each_address(&|index, address| {
            found.lock().unwrap_or_else(PoisonError::into_inner).insert(index, address);
        })?;
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect())
    }

    fn each_address(
        &self,
        found: &(dyn Fn(usize, Result<PciBusId, NvmlError>) + Sync),
    ) -> Result<(), NvmlError> {
        let functions = &self.session.functions;
        let count = functions.count()?;
        // The first call for a card wakes the card up, which may take a second.
        thread::scope(|scope| {
            for (position, index) in (0..count).enumerate() {
                let address =
                    move || functions.handle_by_index(index).and_then(|handle| functions.address(handle));
                scope.spawn(move || found(position, address()));
            }
        });
        Ok(())
    }

    fn card(&self, address: PciBusId) -> Result<CardReadings, NvmlError> {
        let Session { functions, handles, .. } = &*self.session;
        Ok(card::read(functions, handles.get(functions, address)?, address))
    }

    fn pair(&self, one: PciBusId, other: PciBusId) -> Result<PairReadings, NvmlError> {
        let Session { functions, handles, .. } = &*self.session;
        let (one, other) = (handles.get(functions, one)?, handles.get(functions, other)?);
        let ancestor = functions.common_ancestor(one, other).and_then(|number| {
            named("nvmlDeviceGetTopologyCommonAncestor", number, CommonAncestor::from_nvml)
        });
        let nvlink = functions
            .nvlink_peer_to_peer(one, other)
            .and_then(|number| named("nvmlDeviceGetP2PStatus", number, PeerToPeer::from_number));
        Ok(PairReadings { common_ancestor: NvmlError::reading(ancestor), nvlink: NvmlError::reading(nvlink) })
    }

    fn memory(&self, address: PciBusId) -> Reading<Memory> {
        let Session { functions, handles, .. } = &*self.session;
        NvmlError::reading(functions.memory(handles.get(functions, address)?))
    }

    fn utilization(&self, address: PciBusId) -> Reading<Utilization> {
        let Session { functions, handles, .. } = &*self.session;
        NvmlError::reading(functions.utilization(handles.get(functions, address)?))
    }

    fn processes(&self, address: PciBusId) -> Reading<Vec<Process>> {
        let Session { functions, handles, .. } = &*self.session;
        processes(functions, handles.get(functions, address)?)
    }

    fn telemetry(&self, address: PciBusId, processes_since: u64) -> Result<CardTelemetry, NvmlError> {
        let Session { functions, handles, .. } = &*self.session;
        Ok(telemetry::read(functions, handles.get(functions, address)?, processes_since))
    }

    fn health(&self, address: PciBusId) -> Result<HealthReadings, NvmlError> {
        let Session { functions, handles, .. } = &*self.session;
        Ok(health::read(functions, handles.get(functions, address)?))
    }

    fn gpm_sample(&self, address: PciBusId, gpu_instance: Option<u32>) -> Reading<GpmSample> {
        self.take_gpm_sample(address, gpu_instance)
    }

    fn set_compute_mode(&self, address: PciBusId, mode: ComputeMode) -> Result<(), NvmlError> {
        let Session { functions, handles, .. } = &*self.session;
        functions.set_compute_mode(handles.get(functions, address)?, mode.number())
    }

    fn gpu_instance_profiles(&self, address: PciBusId) -> Reading<Vec<GpuInstanceProfile>> {
        self.mig(address).gpu_instance_profiles().map(|profiles| profiles.map(|profiles| profiles.to_vec()))
    }

    fn compute_instance_profiles(
        &self,
        address: PciBusId,
        gpu_instance: u32,
    ) -> Result<Vec<ComputeInstanceProfile>, NvmlError> {
        self.mig(address).compute_instance_profiles(gpu_instance)
    }

    fn gpu_instances(&self, address: PciBusId) -> Result<Vec<GpuInstance>, NvmlError> {
        self.mig(address).gpu_instances()
    }

    fn set_mig_mode(&self, address: PciBusId, on: bool) -> Result<MigModeSwitch, NvmlError> {
        self.mig(address).set_mode(on)
    }

    fn create_gpu_instance(
        &self,
        address: PciBusId,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstance, NvmlError> {
        self.mig(address).create_gpu_instance(profile_id, placement)
    }

    fn destroy_gpu_instance(&self, address: PciBusId, gpu_instance: u32) -> Result<(), NvmlError> {
        self.mig(address).destroy_gpu_instance(gpu_instance)
    }

    fn create_compute_instance(
        &self,
        address: PciBusId,
        gpu_instance: u32,
        profile_id: u32,
    ) -> Result<ComputeInstance, NvmlError> {
        self.mig(address).create_compute_instance(gpu_instance, profile_id)
    }

    fn destroy_compute_instance(
        &self,
        address: PciBusId,
        gpu_instance: u32,
        compute_instance: u32,
    ) -> Result<(), NvmlError> {
        self.mig(address).destroy_compute_instance(gpu_instance, compute_instance)
    }

    fn watch(&self, sink: Box<dyn FnMut(Event) + Send>) -> Result<EventWatch, NvmlError> {
        events::watch(self.clone(), sink)
    }
}

/// One failed query is no reason to reject the driver.
fn warn_of_version(error: &dyn std::error::Error) {
    tracing::warn!(%error, "can't tell whether the NVIDIA driver is new enough; going on");
}

/// The meaning of a number from the driver.
fn named<N: Copy + Into<u64>, T>(
    function: &'static str,
    number: N,
    meaning: impl Fn(N) -> Option<T>,
) -> Result<T, NvmlError> {
    meaning(number).ok_or_else(|| NvmlError::Nonsense { function, value: number.into().to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_within_their_directory_only() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("libnvidia-ml.so.1");
        std::os::unix::fs::symlink("libnvidia-ml.so.580.95.05", &link).unwrap();
        assert_eq!(versioned_name(&link), directory.path().join("libnvidia-ml.so.580.95.05"));

        let outside = directory.path().join("outside.so");
        std::os::unix::fs::symlink("../elsewhere/libnvidia-ml.so.1", &outside).unwrap();
        assert_eq!(versioned_name(&outside), outside);
    }

    #[test]
    fn a_file_that_is_no_library_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("libnvidia-ml.so.1");
        std::fs::write(&path, "not a library").unwrap();
        let message = Library::open(&path).unwrap_err().to_string();
        assert!(message.contains("can't load") && message.contains("libnvidia-ml.so.1"), "{message}");
    }

    #[test]
    fn a_library_that_is_still_being_copied_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("libnvidia-ml.so.1");
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 8]).unwrap();
        let error = Library::open(&path).unwrap_err();
        assert!(matches!(error, OpenError::CutShort { .. }), "{error}");
    }

    #[test]
    fn a_library_of_something_else_says_so() {
        let libc =
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6"]
                .into_iter()
                .map(Path::new)
                .find(|path| path.exists())
                .expect("tests run with glibc");
        let message = Library::open(libc).unwrap_err().to_string();
        assert!(message.contains("nvmlInit_v2") && message.contains("no NVML library"), "{message}");
    }
}
