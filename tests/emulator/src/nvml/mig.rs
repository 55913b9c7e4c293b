//! Partitions: MIG mode, GPU instances, compute instances, and their MIG devices.

mod compute_instances;
mod devices;
mod gpu_instances;
mod mode;
mod profiles;

use super::ffi::Out;
use super::handle::Handle;
use crate::failure::Failure;

/// Returns handles of instances of one profile: `count` is only written, and the caller's buffer has room for the
/// most there can be.
fn give(found: &[Handle], instances: Out<Handle>, count: Out<u32>) -> Result<(), Failure> {
    if instances.is_null() {
        return Err(Failure::INVALID_ARGUMENT);
    }
    count.set(found.len() as u32)?;
    for (position, handle) in found.iter().enumerate() {
        instances.at(position)?.set(*handle)?;
    }
    Ok(())
}
