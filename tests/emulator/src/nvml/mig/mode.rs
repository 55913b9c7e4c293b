//! MIG mode.

use super::super::call::nvml_functions;
use super::super::ffi::Out;
use crate::failure::Failure;
use crate::mig::mode;

nvml_functions! {
    /// `nvmlDeviceGetMigMode`
    fn nvmlDeviceGetMigMode(view: CardView, current: Out<u32>, pending: Out<u32>) {
        view.model()?;
        if pending.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        current.set(view.state.mig.enabled.into())?;
        pending.set(view.state.mig.pending.into())
    }
}

nvml_functions! {
    /// `nvmlDeviceSetMigMode`
    fn nvmlDeviceSetMigMode(view: CardViewInTurn, mode: u32, status: Out<u32>) {
        view.model()?;
        if mode > 1 || status.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        let outcome = view.partition(|model, card| {
            let used = !card.processes.is_empty();
            Ok(mode::set(model, &mut card.mig, mode == 1, used))
        })?;
        status.set(outcome.err().map_or(0, |Failure(code)| code))
    }
}
