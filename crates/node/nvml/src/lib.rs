//! Tessera's interface to the NVIDIA driver, as one trait.
//!
//! [`Nvml`] is implemented by [`Library`] over `libnvidia-ml.so.1`; tests load the emulator's library the same way.
//!
//! ```text
//! driver_root ──> Library::open ──> Nvml ──> CardReadings, CardTelemetry, Event, …
//! ```
//!
//! In: the driver's root folder, then calls. Out: readings, events and changed cards. May touch hardware, the driver's
//! files, clock and threads; not the API server. The only `unsafe` code outside tests. Wing `node`: may use `base`,
//! never `scheduling`.

mod addressing_mode;
mod architecture;
mod brand;
mod card;
mod clocks_event;
mod compute_mode;
mod cpu_set;
mod cuda;
mod driver_calls;
mod driver_root;
mod driver_version;
mod elf;
mod error;
mod event;
mod gpm;
mod health;
mod library;
mod mig;
mod nvlink;
mod nvml;
mod open_error;
mod pair;
mod process;
mod telemetry;

pub use addressing_mode::AddressingMode;
pub use architecture::Architecture;
pub use brand::Brand;
pub use card::{CardReadings, Identity, Memory, Utilization};
pub use clocks_event::ClocksEvents;
pub use compute_mode::ComputeMode;
pub use cpu_set::CpuSet;
pub use cuda::{CUDA_LIBRARY_NAME, Cuda, CudaContext, CudaError, CudaMemory};
pub use driver_calls::{CallError, DriverCalls};
pub use driver_root::{DriverRoot, LIBRARY_DIRECTORIES, LIBRARY_NAME, is_for_this_processor, resolve_below};
pub use driver_version::{CudaVersion, DriverVersion, InvalidDriverVersion, MINIMUM_DRIVER_VERSION};
pub use error::{NvmlError, Reading};
pub use event::{Event, EventWatch};
pub use gpm::{Activity, GpmSample};
pub use health::{FabricHealth, HealthReadings, RemappedRows};
pub use library::Library;
pub use mig::{ComputeInstanceProfile, MigMode, MigModeSwitch};
pub use nvlink::NvLinkReadings;
pub use nvml::Nvml;
pub use open_error::OpenError;
pub use pair::{PairReadings, PeerToPeer};
pub use process::{Process, ProcessKind};
pub use telemetry::{CardTelemetry, PartitionTelemetry, ProcessUtilization};
pub use tessera_api::PciBusId;
pub use tessera_api::facts::{
    ClusterUuid, CommonAncestor, ComputeCapability, ComputeInstance, Fabric, FabricState, GpuInstance,
    GpuInstanceProfile, NvLinkRemote, NvLinkVersion, Placement,
};
