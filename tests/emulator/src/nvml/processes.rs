//! Processes on a card or a MIG device.

use nvml_wrapper_sys::bindings::{nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t};

use super::call::nvml_functions;
use super::context::Device;
use super::ffi::Out;
use crate::failure::Failure;
use crate::state::ProcessKind;

/// Partition id of a process outside of partitions.
const NO_INSTANCE: u32 = u32::MAX;

/// `nvmlProcessInfo_v1_t`. This struct and the next have explicit padding fields, so callers find zeros there.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessInfoV1 {
    pid: u32,
    padding: u32,
    used_memory: u64,
}

/// `nvmlProcessInfo_t`, filled by versions 2 and 3 of the functions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessInfoV2 {
    process: ProcessInfoV1,
    gpu_instance: u32,
    compute_instance: u32,
}

const _: () = assert!(size_of::<ProcessInfoV1>() == size_of::<nvmlProcessInfo_v1_t>());
const _: () = assert!(size_of::<ProcessInfoV2>() == size_of::<nvmlProcessInfo_v2_t>());

/// Processes of a card, including processes on its partitions, or of one MIG device.
fn of_kind(device: &Device<'_>, kind: ProcessKind) -> Vec<ProcessInfoV2> {
    let on = match device {
        Device::Card(_) => None,
        Device::Mig(view) => Some((Some(view.gpu.instance.id), Some(view.instance.id))),
    };
    let processes = device.card().state.processes.iter().filter(|process| process.kind == kind);
    processes
        .filter(|process| on.is_none_or(|on| on == (process.gpu_instance, process.compute_instance)))
        .map(|process| ProcessInfoV2 {
            process: ProcessInfoV1 { pid: process.pid, padding: 0, used_memory: process.used_memory_bytes },
            gpu_instance: process.gpu_instance.unwrap_or(NO_INSTANCE),
            compute_instance: process.compute_instance.unwrap_or(NO_INSTANCE),
        })
        .collect()
}

fn list_v1(
    device: &Device<'_>,
    kind: ProcessKind,
    count: Out<u32>,
    infos: Out<ProcessInfoV1>,
) -> Result<(), Failure> {
    let found: Vec<ProcessInfoV1> = of_kind(device, kind).iter().map(|info| info.process).collect();
    infos.set_list(count, &found)
}

fn list_v2(
    device: &Device<'_>,
    kind: ProcessKind,
    count: Out<u32>,
    infos: Out<ProcessInfoV2>,
) -> Result<(), Failure> {
    infos.set_list(count, &of_kind(device, kind))
}

nvml_functions! {
    /// `nvmlDeviceGetComputeRunningProcesses`
    fn nvmlDeviceGetComputeRunningProcesses(device: Device, count: Out<u32>, infos: Out<ProcessInfoV1>) {
        list_v1(&device, ProcessKind::Compute, count, infos)
    }

    /// `nvmlDeviceGetComputeRunningProcesses_v2`
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: Device, count: Out<u32>, infos: Out<ProcessInfoV2>) {
        list_v2(&device, ProcessKind::Compute, count, infos)
    }

    /// `nvmlDeviceGetComputeRunningProcesses_v3`
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Device, count: Out<u32>, infos: Out<ProcessInfoV2>) {
        list_v2(&device, ProcessKind::Compute, count, infos)
    }

    /// `nvmlDeviceGetGraphicsRunningProcesses`
    fn nvmlDeviceGetGraphicsRunningProcesses(device: Device, count: Out<u32>, infos: Out<ProcessInfoV1>) {
        list_v1(&device, ProcessKind::Graphics, count, infos)
    }

    /// `nvmlDeviceGetGraphicsRunningProcesses_v2`
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: Device, count: Out<u32>, infos: Out<ProcessInfoV2>) {
        list_v2(&device, ProcessKind::Graphics, count, infos)
    }

    /// `nvmlDeviceGetGraphicsRunningProcesses_v3`
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: Device, count: Out<u32>, infos: Out<ProcessInfoV2>) {
        list_v2(&device, ProcessKind::Graphics, count, infos)
    }

    /// `nvmlDeviceGetMPSComputeRunningProcesses`
    fn nvmlDeviceGetMPSComputeRunningProcesses(device: Device, count: Out<u32>, infos: Out<ProcessInfoV1>) {
        list_v1(&device, ProcessKind::Mps, count, infos)
    }

    /// `nvmlDeviceGetMPSComputeRunningProcesses_v2`
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: Device, count: Out<u32>, infos: Out<ProcessInfoV2>) {
        list_v2(&device, ProcessKind::Mps, count, infos)
    }

    /// `nvmlDeviceGetMPSComputeRunningProcesses_v3`
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: Device, count: Out<u32>, infos: Out<ProcessInfoV2>) {
        list_v2(&device, ProcessKind::Mps, count, infos)
    }
}
