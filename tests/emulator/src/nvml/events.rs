//! Event sets: cards whose events a client waits for.
//!
//! The events are in the machine's state, and each set keeps its own position in them, so every waiting process gets
//! every event.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::nvmlEventData_t;

use super::call::{guard, nvml_functions, system};
use super::context::{CardView, Context};
use super::ffi::Out;
use super::handle::Handle;
use super::session::Session;
use crate::failure::Failure;
use crate::state::{EVENT_XID_CRITICAL_ERROR, Event};

/// `nvmlEventTypeSingleBitEccError` and `nvmlEventTypeDoubleBitEccError`
const EVENTS_ECC: u64 = 0x3;
/// Partition of an event of a whole card.
const NO_INSTANCE: u32 = u32::MAX;

/// `nvmlEventSet_t`
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct SetHandle(*mut std::ffi::c_void);

/// Cards of a set, with the events asked for.
#[derive(Default)]
struct EventSet {
    /// By card: event types, and the number of the first event after the registration.
    cards: BTreeMap<u32, Registration>,
    /// Number of the first event not yet returned.
    next: u64,
}

#[derive(Clone, Copy)]
struct Registration {
    types: u64,
    since: u64,
}

/// Sets of this process by handle. Handles are never reused, so a freed one is recognised.
struct Sets {
    last: usize,
    sets: BTreeMap<usize, Arc<Mutex<EventSet>>>,
}

static SETS: Mutex<Sets> = Mutex::new(Sets { last: 0, sets: BTreeMap::new() });

fn sets() -> MutexGuard<'static, Sets> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(handle: SetHandle) -> Result<Arc<Mutex<EventSet>>, Failure> {
    sets().sets.get(&handle.0.addr()).cloned().ok_or(Failure::INVALID_ARGUMENT)
}

fn supported(view: &CardView<'_>) -> u64 {
    let ecc = if view.card.board.ecc_enabled.is_some() { EVENTS_ECC } else { 0 };
    EVENT_XID_CRITICAL_ERROR | ecc
}

impl EventSet {
    /// The next event. Advances the set behind it.
    fn take(&mut self, events: &[Event]) -> Option<Event> {
        let event = events.iter().find(|event| {
            event.number >= self.next
                && self
                    .cards
                    .get(&event.card)
                    .is_some_and(|card| event.number >= card.since && event.event_type & card.types != 0)
        })?;
        self.next = event.number + 1;
        Some(*event)
    }
}

fn wait(context: &Context, set: &Mutex<EventSet>, timeout: Duration) -> Result<Event, Failure> {
    let session: &Session = &context.session;
    let deadline = Instant::now() + timeout;
    loop {
        let snapshot = session.snapshot();
        {
            let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(event) = set.take(&snapshot.state.events) {
                return Ok(event);
            }
            let lost = |index: &u32| snapshot.state.cards.get(*index as usize).is_some_and(|card| card.lost);
            if set.cards.keys().any(lost) {
                return Err(Failure::GPU_IS_LOST);
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::TIMEOUT);
        }
        session.wait(&snapshot, left);
    }
}

/// Struct of `nvmlEventSetWait`: the partition came with version 2.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EventDataV1 {
    device: Handle,
    event_type: u64,
    event_data: u64,
}

/// `nvmlEventSetCreate`
///
/// # Safety
/// Pointers must be null or valid as `nvml.h` requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(handle: Out<SetHandle>) -> u32 {
    system("nvmlEventSetCreate", |_context: &Context| {
        let mut sets = sets();
        let number = sets.last + 1;
        handle.set(SetHandle(std::ptr::without_provenance_mut(number)))?;
        sets.last = number;
        sets.sets.insert(number, Arc::default());
        Ok(())
    })
}

/// `nvmlEventSetFree`
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(handle: SetHandle) -> u32 {
    guard(|| {
        super::session::current()?;
        sets().sets.remove(&handle.0.addr()).map(|_| ()).ok_or(Failure::INVALID_ARGUMENT)
    })
}

/// `nvmlEventSetWait`
///
/// # Safety
/// Pointers must be null or valid as `nvml.h` requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait(handle: SetHandle, data: Out<EventDataV1>, timeout: u32) -> u32 {
    system("nvmlEventSetWait", |context| {
        let event = wait(context, &*set(handle)?, Duration::from_millis(timeout.into()))?;
        data.set(EventDataV1 {
            device: Handle::of(event.card),
            event_type: event.event_type,
            event_data: event.data,
        })
    })
}

/// `nvmlEventSetWait_v2`
///
/// # Safety
/// Pointers must be null or valid as `nvml.h` requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(
    handle: SetHandle,
    data: Out<nvmlEventData_t>,
    timeout: u32,
) -> u32 {
    system("nvmlEventSetWait_v2", |context| {
        if data.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        let event = wait(context, &*set(handle)?, Duration::from_millis(timeout.into()))?;
        data.set(nvmlEventData_t {
            device: Handle::of(event.card).raw().cast(),
            eventType: event.event_type,
            eventData: event.data,
            gpuInstanceId: event.gpu_instance.unwrap_or(NO_INSTANCE),
            computeInstanceId: NO_INSTANCE,
        })
    })
}

nvml_functions! {
    /// `nvmlDeviceGetSupportedEventTypes`
    fn nvmlDeviceGetSupportedEventTypes(view: CardView, types: Out<u64>) {
        types.set(supported(&view))
    }

    /// `nvmlDeviceRegisterEvents`
    fn nvmlDeviceRegisterEvents(view: CardView, types: u64, handle: SetHandle) {
        let set = set(handle)?;
        if types == 0 {
            return Err(Failure::INVALID_ARGUMENT);
        }
        if types & !supported(&view) != 0 {
            return Err(Failure::NOT_SUPPORTED);
        }
        let since = view.context.state().next_event;
        let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
        set.cards
            .entry(view.card.index)
            .and_modify(|registration| registration.types |= types)
            .or_insert(Registration { types, since });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, card: u32) -> Event {
        Event { number, card, event_type: EVENT_XID_CRITICAL_ERROR, data: 79, gpu_instance: None }
    }

    #[test]
    fn a_set_gives_each_event_once_and_none_from_before() {
        let mut set = EventSet::default();
        set.cards.insert(0, Registration { types: EVENT_XID_CRITICAL_ERROR, since: 2 });
        let events = [event(1, 0), event(2, 1), event(3, 0), event(4, 0)];
        assert_eq!(set.take(&events).map(|event| event.number), Some(3));
        assert_eq!(set.take(&events).map(|event| event.number), Some(4));
        assert_eq!(set.take(&events), None);
    }
}
