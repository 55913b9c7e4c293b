use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::functions::{Functions, Handle};
use crate::error::NvmlError;
use tessera_api::PciBusId;

/// The driver's handles of cards, cached: NVML's lookup is slow with many clients. A handle becomes invalid
/// with its card, and may then belong to another card.
#[derive(Default)]
pub(super) struct Handles {
    by_address: Mutex<HashMap<PciBusId, Handle>>,
}

impl Handles {
    /// A handle just verified to belong to the card at `address`.
    pub(super) fn get(&self, functions: &Functions, address: PciBusId) -> Result<Handle, NvmlError> {
        // Not locked during a driver call: a hung card must not hold up the others.
        let known = self.by_address.lock().unwrap_or_else(PoisonError::into_inner).get(&address).copied();
        if let Some(handle) = known
            && functions.address(handle) == Ok(address)
        {
            return Ok(handle);
        }
        let fresh = functions
            .handle_by_address(address)
            .and_then(|handle| functions.address(handle).map(|found| (handle, found)))
            .and_then(|(handle, found)| match found == address {
                true => Ok(handle),
                false => Err(NvmlError::Nonsense {
                    function: "nvmlDeviceGetHandleByPciBusId_v2",
                    value: format!("the card at {found} when asked for {address}"),
                }),
            });
        let mut handles = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        match &fresh {
            Ok(handle) => handles.insert(address, *handle),
            Err(_) => handles.remove(&address),
        };
        fresh
    }
}
