//! Partitions. Emulated boards say whether they can be partitioned, and that they are not: partitions themselves come with
//! their own issue, and their functions are among the unsupported ones until then.

use super::call::{CardView, Failure, nvml_functions};
use super::ffi::Out;

fn capable(view: &CardView<'_>) -> Result<(), Failure> {
    if view.card.board.mig_capable { Ok(()) } else { Err(Failure::NOT_SUPPORTED) }
}

nvml_functions! {
    /// `nvmlDeviceGetMigMode`
    fn nvmlDeviceGetMigMode(view: CardView, current: Out<u32>, pending: Out<u32>) {
        capable(&view)?;
        if pending.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        current.set(view.state.mig_mode.into())?;
        pending.set(view.state.mig_mode.into())
    }

    /// `nvmlDeviceGetMaxMigDeviceCount`: zero where MIG is not supported or not on.
    fn nvmlDeviceGetMaxMigDeviceCount(_view: CardView, count: Out<u32>) {
        count.set(0)
    }

    /// `nvmlDeviceGetMigDeviceHandleByIndex`
    fn nvmlDeviceGetMigDeviceHandleByIndex(view: CardView, _index: u32, _partition: Out<super::call::Handle>) {
        capable(&view)?;
        Err(Failure::NOT_FOUND)
    }

    /// `nvmlDeviceIsMigDeviceHandle`
    fn nvmlDeviceIsMigDeviceHandle(_view: CardView, is_mig: Out<u32>) {
        is_mig.set(0)
    }
}
