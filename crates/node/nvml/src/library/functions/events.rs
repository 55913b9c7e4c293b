use std::time::Duration;

use nvml_wrapper_sys::bindings as sys;

use super::{Functions, Handle, function};
use crate::error::NvmlError;

/// NVML's handle of an event set.
#[derive(Clone, Copy)]
pub(in crate::library) struct EventSetHandle(sys::nvmlEventSet_t);

// SAFETY: NVML is thread-safe, and the handle is a name that any thread of the process may use.
unsafe impl Send for EventSetHandle {}
// SAFETY: as above; the pointer is never followed here.
unsafe impl Sync for EventSetHandle {}

/// One event in NVML's form.
pub(in crate::library) struct RawEvent {
    /// The event's card; `None` for the machine's own events.
    pub(in crate::library) card: Option<Handle>,
    /// `nvmlEventType…`, one bit.
    pub(in crate::library) kinds: u64,
    /// The XID, for an XID.
    pub(in crate::library) data: u64,
    /// The MIG GPU instance.
    pub(in crate::library) gpu_instance: Option<u32>,
    /// The MIG compute instance.
    pub(in crate::library) compute_instance: Option<u32>,
}

impl Functions {
    pub(in crate::library) fn create_event_set(&self) -> Result<EventSetHandle, NvmlError> {
        let function = function!(self, nvmlEventSetCreate);
        let create = function.get()?;
        let mut set = std::ptr::null_mut();
        // SAFETY: writes one handle.
        function.check(unsafe { create(&raw mut set) })?;
        Ok(EventSetHandle(set))
    }

    /// The handle is invalid afterwards.
    pub(in crate::library) fn free_event_set(&self, set: EventSetHandle) -> Result<(), NvmlError> {
        let function = function!(self, nvmlEventSetFree);
        let free = function.get()?;
        // SAFETY: the set is freed once, by the one guard that owns it.
        function.check(unsafe { free(set.0) })
    }

    pub(in crate::library) fn event_kinds(&self, card: Handle) -> Result<u64, NvmlError> {
        function!(self, nvmlDeviceGetSupportedEventTypes).read(card, 0)
    }

    pub(in crate::library) fn register_events(
        &self,
        card: Handle,
        kinds: u64,
        set: EventSetHandle,
    ) -> Result<(), NvmlError> {
        let function = function!(self, nvmlDeviceRegisterEvents);
        let register = function.get()?;
        // SAFETY: takes handles and a number; the set is alive, its guard is with the caller.
        function.check(unsafe { register(card.0, kinds, set.0) })
    }

    pub(in crate::library) fn wait_for_event(
        &self,
        set: EventSetHandle,
        timeout: Duration,
    ) -> Result<RawEvent, NvmlError> {
        let function = function!(self, nvmlEventSetWait_v2);
        let wait = function.get()?;
        let timeout = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let mut event = sys::nvmlEventData_t {
            device: std::ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        };
        // SAFETY: writes one record; the set is alive, its guard is with the caller.
        function.check(unsafe { wait(set.0, &raw mut event, timeout) })?;
        let known = |id: u32| (id != u32::MAX).then_some(id);
        Ok(RawEvent {
            card: (!event.device.is_null()).then_some(Handle(event.device)),
            kinds: event.eventType,
            data: event.eventData,
            gpu_instance: known(event.gpuInstanceId),
            compute_instance: known(event.computeInstanceId),
        })
    }
}
