//! Processes on a card.

use nvml_wrapper_sys::bindings::{nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t};

use super::call::{CardView, Failure, nvml_functions};
use super::ffi::Out;
use crate::state::{Process, ProcessKind};

/// Partition of a process that is in none.
const NO_INSTANCE: u32 = u32::MAX;

fn of_kind<'view>(view: &CardView<'view>, kind: ProcessKind) -> impl Iterator<Item = &'view Process> {
    view.state.processes.iter().filter(move |process| process.kind == kind)
}

fn list_v1(
    view: &CardView<'_>,
    kind: ProcessKind,
    count: Out<u32>,
    infos: Out<nvmlProcessInfo_v1_t>,
) -> Result<(), Failure> {
    let found: Vec<nvmlProcessInfo_v1_t> = of_kind(view, kind)
        .map(|process| nvmlProcessInfo_v1_t { pid: process.pid, usedGpuMemory: process.used_memory_bytes })
        .collect();
    infos.set_list(count, &found)
}

/// Versions 2 and 3 fill the same struct.
fn list_v2(
    view: &CardView<'_>,
    kind: ProcessKind,
    count: Out<u32>,
    infos: Out<nvmlProcessInfo_v2_t>,
) -> Result<(), Failure> {
    let found: Vec<nvmlProcessInfo_v2_t> = of_kind(view, kind)
        .map(|process| nvmlProcessInfo_v2_t {
            pid: process.pid,
            usedGpuMemory: process.used_memory_bytes,
            gpuInstanceId: NO_INSTANCE,
            computeInstanceId: NO_INSTANCE,
        })
        .collect();
    infos.set_list(count, &found)
}

nvml_functions! {
    /// `nvmlDeviceGetComputeRunningProcesses`
    fn nvmlDeviceGetComputeRunningProcesses(view: CardView, count: Out<u32>, infos: Out<nvmlProcessInfo_v1_t>) {
        list_v1(&view, ProcessKind::Compute, count, infos)
    }

    /// `nvmlDeviceGetComputeRunningProcesses_v2`
    fn nvmlDeviceGetComputeRunningProcesses_v2(view: CardView, count: Out<u32>, infos: Out<nvmlProcessInfo_v2_t>) {
        list_v2(&view, ProcessKind::Compute, count, infos)
    }

    /// `nvmlDeviceGetComputeRunningProcesses_v3`
    fn nvmlDeviceGetComputeRunningProcesses_v3(view: CardView, count: Out<u32>, infos: Out<nvmlProcessInfo_v2_t>) {
        list_v2(&view, ProcessKind::Compute, count, infos)
    }

    /// `nvmlDeviceGetGraphicsRunningProcesses`
    fn nvmlDeviceGetGraphicsRunningProcesses(view: CardView, count: Out<u32>, infos: Out<nvmlProcessInfo_v1_t>) {
        list_v1(&view, ProcessKind::Graphics, count, infos)
    }

    /// `nvmlDeviceGetGraphicsRunningProcesses_v2`
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(view: CardView, count: Out<u32>, infos: Out<nvmlProcessInfo_v2_t>) {
        list_v2(&view, ProcessKind::Graphics, count, infos)
    }

    /// `nvmlDeviceGetGraphicsRunningProcesses_v3`
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(view: CardView, count: Out<u32>, infos: Out<nvmlProcessInfo_v2_t>) {
        list_v2(&view, ProcessKind::Graphics, count, infos)
    }

    /// `nvmlDeviceGetMPSComputeRunningProcesses`
    fn nvmlDeviceGetMPSComputeRunningProcesses(view: CardView, count: Out<u32>, infos: Out<nvmlProcessInfo_v1_t>) {
        list_v1(&view, ProcessKind::Mps, count, infos)
    }

    /// `nvmlDeviceGetMPSComputeRunningProcesses_v2`
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(view: CardView, count: Out<u32>, infos: Out<nvmlProcessInfo_v2_t>) {
        list_v2(&view, ProcessKind::Mps, count, infos)
    }

    /// `nvmlDeviceGetMPSComputeRunningProcesses_v3`
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(view: CardView, count: Out<u32>, infos: Out<nvmlProcessInfo_v2_t>) {
        list_v2(&view, ProcessKind::Mps, count, infos)
    }
}
