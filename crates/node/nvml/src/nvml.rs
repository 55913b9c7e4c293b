use crate::card::{CardReadings, Identity, Memory, Utilization};
use crate::compute_mode::ComputeMode;
use crate::driver_version::CudaVersion;
use crate::error::{NvmlError, Reading};
use crate::event::{Event, EventWatch};
use crate::gpm::GpmSample;
use crate::health::HealthReadings;
use crate::mig::{ComputeInstanceProfile, MigModeSwitch};
use crate::pair::PairReadings;
use crate::process::Process;
use crate::telemetry::CardTelemetry;
use crate::{ComputeInstance, GpuInstance, GpuInstanceProfile, Placement};
use tessera_api::PciBusId;

/// The driver of one machine. Calls block, some for seconds; async code must use a blocking thread.
///
/// The default methods answer like a driver without the function, so a fake in a test implements only the methods
/// in use.
pub trait Nvml: Send + Sync + 'static {
    /// Reads the identity of the card at `address`.
    ///
    /// # Errors
    /// [`NvmlError::Call`] when no card answers at `address`, or the card is lost.
    fn identify(&self, address: PciBusId) -> Result<Identity, NvmlError>;

    /// Whether this session was opened during another session of this process, and is now the only open one: cards added
    /// before are known after closing and opening anew.
    fn is_outdated(&self) -> bool {
        false
    }

    /// The driver's version in the driver's own form, `580.95.05`, also the ending of its libraries' file names.
    /// Parse the text into a [`DriverVersion`](crate::DriverVersion) for comparison.
    ///
    /// # Errors
    /// Where the driver doesn't answer.
    fn driver_version(&self) -> Result<String, NvmlError> {
        missing("nvmlSystemGetDriverVersion")
    }

    /// The newest CUDA supported by the driver.
    ///
    /// # Errors
    /// Where the driver doesn't answer.
    fn cuda_version(&self) -> Result<CudaVersion, NvmlError> {
        missing("nvmlSystemGetCudaDriverVersion_v2")
    }

    /// Whether the machine's cards accept the work of programs in confidential computing mode: not before
    /// somebody has set their ready state (`nvmlSystemGetConfComputeGpusReadyState`). `None` in any other mode.
    ///
    /// # Errors
    /// Where the driver doesn't answer.
    fn accepts_confidential_work(&self) -> Reading<bool> {
        Ok(None)
    }

    /// Every card of the machine in the order of NVML's indexes; an error in place of an unreachable card.
    ///
    /// # Errors
    /// Where the driver doesn't answer.
    fn addresses(&self) -> Result<Vec<Result<PciBusId, NvmlError>>, NvmlError> {
        missing("nvmlDeviceGetCount_v2")
    }

    /// As [`Nvml::addresses`], but passes each address to `found` as soon as known, with the card's index, so
    /// a card with a hung driver does not hold up the others. `found` is called from several threads.
    ///
    /// # Errors
    /// Where the driver doesn't answer.
    fn each_address(
        &self,
        found: &(dyn Fn(usize, Result<PciBusId, NvmlError>) + Sync),
    ) -> Result<(), NvmlError> {
        self.addresses()?.into_iter().enumerate().for_each(|(index, address)| found(index, address));
        Ok(())
    }

    /// Reads all facts of one card.
    ///
    /// # Errors
    /// When no card answers at the address, or the card is lost. A single failed query is an error in its own field.
    fn card(&self, _address: PciBusId) -> Result<CardReadings, NvmlError> {
        missing("nvmlDeviceGetHandleByPciBusId_v2")
    }

    /// Reads the connection between two cards.
    ///
    /// # Errors
    /// When one of the cards doesn't answer at all.
    fn pair(&self, _one: PciBusId, _other: PciBusId) -> Result<PairReadings, NvmlError> {
        missing("nvmlDeviceGetTopologyCommonAncestor")
    }

    /// Reads a card's memory; `None` for a card without its own.
    ///
    /// # Errors
    /// When the card doesn't answer.
    fn memory(&self, _address: PciBusId) -> Reading<Memory> {
        Ok(None)
    }

    /// Reads the utilization of a card; `None` while its MIG mode is on.
    ///
    /// # Errors
    /// When the card doesn't answer.
    fn utilization(&self, _address: PciBusId) -> Reading<Utilization> {
        Ok(None)
    }

    /// The processes on a card, by process id; a process with several kinds of use is listed several times.
    ///
    /// # Errors
    /// When the card doesn't answer.
    fn processes(&self, _address: PciBusId) -> Reading<Vec<Process>> {
        Ok(None)
    }

    /// Reads a card's current activity. Utilization of processes is measured after `processes_since`, by the driver's clock
    /// ([`ProcessUtilization::at`](crate::ProcessUtilization)).
    ///
    /// # Errors
    /// When no card answers at the address, or the card is lost. A single failed query is an error in its own field.
    fn telemetry(&self, _address: PciBusId, _processes_since: u64) -> Result<CardTelemetry, NvmlError> {
        missing("nvmlDeviceGetHandleByPciBusId_v2")
    }

    /// Reads the driver's report on a card's health. Events ([`Nvml::watch`]) are not included.
    ///
    /// # Errors
    /// When no card answers at the address, or the card is lost. A single failed query is an error in its own field.
    fn health(&self, _address: PciBusId) -> Result<HealthReadings, NvmlError> {
        missing("nvmlDeviceGetHandleByPciBusId_v2")
    }

    /// A moment in the performance counters of a card, or of a GPU instance of the card; `None` without counters (before Hopper).
    ///
    /// # Errors
    /// When the card doesn't answer.
    fn gpm_sample(&self, _address: PciBusId, _gpu_instance: Option<u32>) -> Reading<GpmSample> {
        Ok(None)
    }

    /// Sets the processes allowed to use a card; running processes are not affected. The setting is lost at a reboot, and
    /// when the driver unloads (without persistence mode).
    ///
    /// # Errors
    /// When the driver refuses: without root's rights (`NO_PERMISSION`), or the card has no such mode.
    fn set_compute_mode(&self, _address: PciBusId, _mode: ComputeMode) -> Result<(), NvmlError> {
        missing("nvmlDeviceSetComputeMode")
    }

    /// The kinds of GPU instances offered by a card, with its mode on or off, by memory and then by name; `None` on
    /// a card without MIG. Empty if the mode is off and the driver lists them only in the mode (before R545).
    ///
    /// They stay the same until the next boot.
    ///
    /// # Errors
    /// When the card doesn't answer.
    fn gpu_instance_profiles(&self, _address: PciBusId) -> Reading<Vec<GpuInstanceProfile>> {
        Ok(None)
    }

    /// The kinds of compute instances offered by an existing GPU instance, by compute slices.
    ///
    /// # Errors
    /// When the card doesn't answer or has no such instance.
    fn compute_instance_profiles(
        &self,
        _address: PciBusId,
        _gpu_instance: u32,
    ) -> Result<Vec<ComputeInstanceProfile>, NvmlError> {
        missing("nvmlGpuInstanceGetComputeInstanceProfileInfoV")
    }

    /// The GPU instances of a card, by id, whoever made them, with and without compute instances. Empty while its MIG
    /// mode is off.
    ///
    /// # Errors
    /// When the card doesn't answer.
    fn gpu_instances(&self, _address: PciBusId) -> Result<Vec<GpuInstance>, NvmlError> {
        missing("nvmlDeviceGetGpuInstances")
    }

    /// Switches a card's MIG mode on or off; does nothing if the card is in this mode already.
    ///
    /// # Errors
    /// When the driver refuses: instances exist, the card has no MIG, or this process lacks root's rights. If clients
    /// hold the card, the driver either refuses or reports the reason in [`MigModeSwitch::not_active`].
    fn set_mig_mode(&self, _address: PciBusId, _on: bool) -> Result<MigModeSwitch, NvmlError> {
        missing("nvmlDeviceSetMigMode")
    }

    /// Makes a GPU instance of a profile (by its id) at exactly this placement. Takes about a second on hardware.
    ///
    /// # Errors
    /// When the driver refuses: `INSUFFICIENT_RESOURCES` where something else lies there. If the error is of any
    /// other function than `nvmlDeviceCreateGpuInstanceWithPlacement`, the instance exists.
    fn create_gpu_instance(
        &self,
        _address: PciBusId,
        _profile_id: u32,
        _placement: Placement,
    ) -> Result<GpuInstance, NvmlError> {
        missing("nvmlDeviceCreateGpuInstanceWithPlacement")
    }

    /// Destroys an empty GPU instance.
    ///
    /// # Errors
    /// `IN_USE` while the instance has compute instances or clients; `NOT_FOUND` if gone.
    fn destroy_gpu_instance(&self, _address: PciBusId, _gpu_instance: u32) -> Result<(), NvmlError> {
        missing("nvmlGpuInstanceDestroy")
    }

    /// Makes a compute instance of a profile (by its id) in a GPU instance.
    ///
    /// # Errors
    /// When the driver refuses, or the GPU instance is gone. If the error is of any other function than
    /// `nvmlGpuInstanceCreateComputeInstance`, the instance may exist.
    fn create_compute_instance(
        &self,
        _address: PciBusId,
        _gpu_instance: u32,
        _profile_id: u32,
    ) -> Result<ComputeInstance, NvmlError> {
        missing("nvmlGpuInstanceCreateComputeInstance")
    }

    /// Destroys a compute instance.
    ///
    /// # Errors
    /// `IN_USE` while the instance has clients; `NOT_FOUND` if gone.
    fn destroy_compute_instance(
        &self,
        _address: PciBusId,
        _gpu_instance: u32,
        _compute_instance: u32,
    ) -> Result<(), NvmlError> {
        missing("nvmlComputeInstanceDestroy")
    }

    /// Passes the driver's events to `sink`, on a thread of its own, until the returned watch is dropped. `sink` must
    /// not block for long, because the driver's queue is limited.
    ///
    /// # Errors
    /// Where the driver has no events.
    fn watch(&self, _sink: Box<dyn FnMut(Event) + Send>) -> Result<EventWatch, NvmlError> {
        missing("nvmlEventSetCreate")
    }
}

fn missing<T>(function: &'static str) -> Result<T, NvmlError> {
    Err(NvmlError::MissingFunction { function })
}
