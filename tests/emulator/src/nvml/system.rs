//! The library itself: initialisation, versions, error texts.

use std::ffi::c_char;

use super::call::{guard, nvml_functions};
use super::context::Context;
use super::faults::suffer;
use super::ffi::{Out, OutText};
use super::session;
use crate::failure::{Failure, error_string};
use crate::machine::build::cuda_number;
use crate::state::Moment;

fn initialize(function: &'static str) -> u32 {
    guard(|| {
        session::open()?;
        let opened = session::current()?;
        let snapshot = opened.snapshot();
        suffer(&opened, &snapshot.state, function, None, Moment::Before).inspect_err(|_| {
            // A failed initialisation needs no shutdown.
            let _ = session::close();
        })
    })
}

/// `nvmlInit`
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> u32 {
    initialize("nvmlInit")
}

/// `nvmlInit_v2`
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> u32 {
    initialize("nvmlInit_v2")
}

/// `nvmlInitWithFlags`: neither flag matters here: the cards are always there.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: u32) -> u32 {
    initialize("nvmlInitWithFlags")
}

/// `nvmlShutdown`
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> u32 {
    guard(session::close)
}

/// `nvmlErrorString`: works without initialisation.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: u32) -> *const c_char {
    error_string(result).as_ptr()
}

/// Version of the library in its own form: the CUDA major version before the driver's own, since CUDA 11.
fn nvml_version(context: &Context) -> String {
    let driver = &context.machine().driver;
    let major = driver.cuda_version.split('.').next().unwrap_or_default();
    format!("{major}.{}", driver.version)
}

fn cuda_version(context: &Context) -> Result<i32, Failure> {
    cuda_number(&context.machine().driver.cuda_version).ok_or(Failure::UNKNOWN)
}

nvml_functions! {
    /// `nvmlSystemGetDriverVersion`
    fn nvmlSystemGetDriverVersion(context: &Context, version: OutText, length: u32) {
        version.set(length, &context.machine().driver.version)
    }

    /// `nvmlSystemGetDriverBranch`
    fn nvmlSystemGetDriverBranch(context: &Context, info: Out<DriverBranchInfo>, length: u32) {
        let asked = info.get()?;
        super::ffi::check_version::<DriverBranchInfo>(asked.version, 1)?;
        let branch = context.machine().driver.version.split('.').next().map(|major| format!("r{major}_00"));
        let branch = branch.ok_or(Failure::UNKNOWN)?;
        if (length as usize) < branch.len() + 1 {
            return Err(Failure::INSUFFICIENT_SIZE);
        }
        info.set(DriverBranchInfo { version: asked.version, branch: super::ffi::characters(&branch) })
    }

    /// `nvmlSystemGetNVMLVersion`
    fn nvmlSystemGetNVMLVersion(context: &Context, version: OutText, length: u32) {
        version.set(length, &nvml_version(context))
    }

    /// `nvmlSystemGetCudaDriverVersion`
    fn nvmlSystemGetCudaDriverVersion(context: &Context, version: Out<i32>) {
        version.set(cuda_version(context)?)
    }

    /// `nvmlSystemGetCudaDriverVersion_v2`
    fn nvmlSystemGetCudaDriverVersion_v2(context: &Context, version: Out<i32>) {
        version.set(cuda_version(context)?)
    }

    /// `nvmlSystemGetProcessName`: the process's name in the system.
    fn nvmlSystemGetProcessName(_context: &Context, pid: u32, name: OutText, length: u32) {
        if length == 0 {
            return Err(Failure::INVALID_ARGUMENT);
        }
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| Failure::NOT_FOUND)?;
        let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut text = String::from_utf8_lossy(first).into_owned();
        // The real library cuts a long name to the buffer instead of refusing.
        let mut end = text.len().min(length as usize - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        name.set(length, &text)
    }

    /// `nvmlDeviceGetCount`
    fn nvmlDeviceGetCount(context: &Context, count: Out<u32>) {
        count.set(context.machine().present().count() as u32)
    }

    /// `nvmlDeviceGetCount_v2`: lost cards count too.
    fn nvmlDeviceGetCount_v2(context: &Context, count: Out<u32>) {
        count.set(context.machine().present().count() as u32)
    }

    /// `nvmlUnitGetCount`: no emulated machine has S-class units.
    fn nvmlUnitGetCount(_context: &Context, count: Out<u32>) {
        count.set(0)
    }

    /// `nvmlSystemGetHicVersion`: there are no host interface cards.
    fn nvmlSystemGetHicVersion(_context: &Context, count: Out<u32>, _entries: Out<u32>) {
        count.set(0)
    }

    /// `nvmlGetExcludedDeviceCount`
    fn nvmlGetExcludedDeviceCount(_context: &Context, count: Out<u32>) {
        count.set(0)
    }
}

/// `nvmlSystemDriverBranchInfo_v1_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DriverBranchInfo {
    version: u32,
    branch: [c_char; 80],
}
