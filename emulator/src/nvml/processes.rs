//! Processes on a card.

use nvml_wrapper_sys::bindings::{nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t};

use super::call::{CardView, Failure, nvml_functions};
use super::ffi::Out;
use crate::state::ProcessKind;

/// Partition of a process that is in none.
const NO_INSTANCE: u32 = u32::MAX;

/// `nvmlProcessInfo_v1_t`. This struct and the next name their padding, so that callers find zeros there.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessInfoV1 {
    pid: u32,
    padding: u32,
    used_memory: u64,
}

/// `nvmlProcessInfo_t`, which versions 2 and 3 of the functions fill.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessInfoV2 {
    process: ProcessInfoV1,
    gpu_instance: u32,
    compute_instance: u32,
}

const _: () = assert!(size_of::<ProcessInfoV1>() == size_of::<nvmlProcessInfo_v1_t>());
const _: () = assert!(size_of::<ProcessInfoV2>() == size_of::<nvmlProcessInfo_v2_t>());

fn of_kind(view: &CardView<'_>, kind: ProcessKind) -> impl Iterator<Item = ProcessInfoV1> {
    view.state.processes.iter().filter(move |process| process.kind == kind).map(|process| ProcessInfoV1 {
        pid: process.pid,
        padding: 0,
        used_memory: process.used_memory_bytes,
    })
}

fn list_v1(
    view: &CardView<'_>,
    kind: ProcessKind,
    count: Out<u32>,
    infos: Out<ProcessInfoV1>,
) -> Result<(), Failure> {
    infos.set_list(count, &of_kind(view, kind).collect::<Vec<_>>())
}

fn list_v2(
    view: &CardView<'_>,
    kind: ProcessKind,
    count: Out<u32>,
    infos: Out<ProcessInfoV2>,
) -> Result<(), Failure> {
    let found: Vec<ProcessInfoV2> = of_kind(view, kind)
        .map(|process| ProcessInfoV2 { process, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE })
        .collect();
    infos.set_list(count, &found)
}

nvml_functions! {
    /// `nvmlDeviceGetComputeRunningProcesses`
    fn nvmlDeviceGetComputeRunningProcesses(view: CardView, count: Out<u32>, infos: Out<ProcessInfoV1>) {
        list_v1(&view, ProcessKind::Compute, count, infos)
    }

    /// `nvmlDeviceGetComputeRunningProcesses_v2`
    fn nvmlDeviceGetComputeRunningProcesses_v2(view: CardView, count: Out<u32>, infos: Out<ProcessInfoV2>) {
        list_v2(&view, ProcessKind::Compute, count, infos)
    }

    /// `nvmlDeviceGetComputeRunningProcesses_v3`
    fn nvmlDeviceGetComputeRunningProcesses_v3(view: CardView, count: Out<u32>, infos: Out<ProcessInfoV2>) {
        list_v2(&view, ProcessKind::Compute, count, infos)
    }

    /// `nvmlDeviceGetGraphicsRunningProcesses`
    fn nvmlDeviceGetGraphicsRunningProcesses(view: CardView, count: Out<u32>, infos: Out<ProcessInfoV1>) {
        list_v1(&view, ProcessKind::Graphics, count, infos)
    }

    /// `nvmlDeviceGetGraphicsRunningProcesses_v2`
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(view: CardView, count: Out<u32>, infos: Out<ProcessInfoV2>) {
        list_v2(&view, ProcessKind::Graphics, count, infos)
    }

    /// `nvmlDeviceGetGraphicsRunningProcesses_v3`
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(view: CardView, count: Out<u32>, infos: Out<ProcessInfoV2>) {
        list_v2(&view, ProcessKind::Graphics, count, infos)
    }

    /// `nvmlDeviceGetMPSComputeRunningProcesses`
    fn nvmlDeviceGetMPSComputeRunningProcesses(view: CardView, count: Out<u32>, infos: Out<ProcessInfoV1>) {
        list_v1(&view, ProcessKind::Mps, count, infos)
    }

    /// `nvmlDeviceGetMPSComputeRunningProcesses_v2`
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(view: CardView, count: Out<u32>, infos: Out<ProcessInfoV2>) {
        list_v2(&view, ProcessKind::Mps, count, infos)
    }

    /// `nvmlDeviceGetMPSComputeRunningProcesses_v3`
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(view: CardView, count: Out<u32>, infos: Out<ProcessInfoV2>) {
        list_v2(&view, ProcessKind::Mps, count, infos)
    }
}
