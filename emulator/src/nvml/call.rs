//! What every call of the library goes through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::session::{self, Session, Snapshot};
use crate::machine::{Card, Machine};
use crate::state::{CardState, FaultEffect, State, StoreError};

/// `nvmlReturn_t` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure(pub u32);

macro_rules! failures {
    ($($name:ident = $code:literal, $text:literal;)+) => {
        impl Failure {
            $(#[doc = concat!("`NVML_ERROR_", stringify!($name), "`")] pub const $name: Failure = Failure($code);)+

            /// Name of the code as in `nvml.h`, without `NVML_ERROR_`.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($name)),)+
                    _ => None,
                }
            }

            /// The code called `name`, with or without `NVML_ERROR_`.
            pub fn from_name(name: &str) -> Option<Failure> {
                match name.strip_prefix("NVML_ERROR_").unwrap_or(name) {
                    $(stringify!($name) => Some(Failure($code)),)+
                    _ => None,
                }
            }

            /// Names of all codes.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];
        }

        /// `nvmlErrorString`.
        pub(super) fn error_string(code: u32) -> &'static std::ffi::CStr {
            match code {
                0 => c"Success",
                $($code => $text,)+
                _ => c"Unknown Error",
            }
        }
    };
}

// Codes of nvml.h; texts as the library of driver 580 prints them.
failures! {
    UNINITIALIZED = 1, c"Uninitialized";
    INVALID_ARGUMENT = 2, c"Invalid Argument";
    NOT_SUPPORTED = 3, c"Not Supported";
    NO_PERMISSION = 4, c"Insufficient Permissions";
    ALREADY_INITIALIZED = 5, c"Already Initialized";
    NOT_FOUND = 6, c"Not Found";
    INSUFFICIENT_SIZE = 7, c"Insufficient Size";
    INSUFFICIENT_POWER = 8, c"Insufficient External Power";
    DRIVER_NOT_LOADED = 9, c"Driver Not Loaded";
    TIMEOUT = 10, c"Timeout";
    IRQ_ISSUE = 11, c"Interrupt Request Issue";
    LIBRARY_NOT_FOUND = 12, c"NVML Shared Library Not Found";
    FUNCTION_NOT_FOUND = 13, c"Function Not Found";
    CORRUPTED_INFOROM = 14, c"Corrupted infoROM";
    GPU_IS_LOST = 15, c"GPU is lost";
    RESET_REQUIRED = 16, c"GPU requires reset";
    OPERATING_SYSTEM = 17, c"GPU access blocked by the operating system";
    LIB_RM_VERSION_MISMATCH = 18, c"Driver/library version mismatch";
    IN_USE = 19, c"In use by another client";
    MEMORY = 20, c"Insufficient Memory";
    NO_DATA = 21, c"No data";
    VGPU_ECC_NOT_SUPPORTED = 22, c"The requested vgpu operation is not available on target device, becasue ECC is enabled";
    INSUFFICIENT_RESOURCES = 23, c"Insufficient Resources";
    FREQ_NOT_SUPPORTED = 24, c"The requested frequency is not supported";
    ARGUMENT_VERSION_MISMATCH = 25, c"Argument version mismatch";
    DEPRECATED = 26, c"Requested functionality has been deprecated";
    NOT_READY = 27, c"System is not in ready state";
    GPU_NOT_FOUND = 28, c"No GPUs were found";
    INVALID_STATE = 29, c"Resource not in correct state to perform requested operation";
    RESET_TYPE_NOT_SUPPORTED = 30, c"Reset type not supported";
    UNKNOWN = 999, c"Unknown Error";
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        if error.is_permission() { Failure::NO_PERMISSION } else { Failure::UNKNOWN }
    }
}

/// An opaque card: `nvmlDevice_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(*mut std::ffi::c_void);

/// Added to a card's index to make its handle: no small number and no address of anything is taken for a card.
const HANDLE_BASE: usize = 0x4e56_4d4c_0000;
/// Distance of two handles, as if each were an object.
const HANDLE_STEP: usize = 64;

impl Handle {
    /// The handle of a card.
    pub fn of(index: u32) -> Self {
        Handle(std::ptr::without_provenance_mut(HANDLE_BASE + HANDLE_STEP * index as usize))
    }

    /// As the pointer that C knows.
    pub fn raw(self) -> *mut std::ffi::c_void {
        self.0
    }

    /// Index of the card, of `cards` there are.
    ///
    /// # Errors
    /// [`Failure::INVALID_ARGUMENT`] for what is not a handle of ours.
    pub fn index(self, cards: usize) -> Result<u32, Failure> {
        let offset = self.0.addr().checked_sub(HANDLE_BASE).ok_or(Failure::INVALID_ARGUMENT)?;
        let index = offset / HANDLE_STEP;
        if offset % HANDLE_STEP != 0 || index >= cards {
            return Err(Failure::INVALID_ARGUMENT);
        }
        u32::try_from(index).map_err(|_| Failure::INVALID_ARGUMENT)
    }
}

/// What a call may look at.
pub struct Context {
    /// The machine.
    pub session: Arc<Session>,
    /// Its state at the beginning of the call.
    pub snapshot: Arc<Snapshot>,
}

impl Context {
    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.session.machine
    }

    /// Its state.
    pub fn state(&self) -> &State {
        &self.snapshot.state
    }

    /// The card with that index, if it is there and answers.
    ///
    /// # Errors
    /// [`Failure::GPU_IS_LOST`] for a card that fell off the bus.
    pub fn card(&self, index: u32) -> Result<CardView<'_>, Failure> {
        let card = self.machine().cards.get(index as usize).ok_or(Failure::INVALID_ARGUMENT)?;
        let state = self.state().cards.get(index as usize).ok_or(Failure::UNKNOWN)?;
        if state.lost {
            return Err(Failure::GPU_IS_LOST);
        }
        Ok(CardView { context: self, card, state })
    }

    /// The card behind a handle, if it answers.
    ///
    /// # Errors
    /// [`Failure::INVALID_ARGUMENT`] for what is not a handle, [`Failure::GPU_IS_LOST`] for a lost card.
    pub fn handle(&self, handle: Handle) -> Result<CardView<'_>, Failure> {
        self.card(handle.index(self.machine().cards.len())?)
    }
}

/// One card in a call.
#[derive(Clone, Copy)]
pub struct CardView<'context> {
    /// What else the call may look at.
    pub context: &'context Context,
    /// What does not change.
    pub card: &'context Card,
    /// What does.
    pub state: &'context CardState,
}

impl CardView<'_> {
    /// Changes the state of this card.
    ///
    /// # Errors
    /// [`Failure::NO_PERMISSION`] where the machine's files may not be written.
    pub fn update(&self, change: impl FnOnce(&mut CardState) -> Result<(), Failure>) -> Result<(), Failure> {
        let index = self.card.index as usize;
        self.context.session.store.update(|state| change(state.cards.get_mut(index).ok_or(Failure::UNKNOWN)?))
    }
}

/// Runs a call that concerns no card.
pub fn system(function: &'static str, body: impl FnOnce(&Context) -> Result<(), Failure>) -> u32 {
    guard(|| {
        let context = enter(function, |_| None)?;
        body(&context)
    })
}

/// Runs a call on a card.
pub fn device(
    function: &'static str,
    handle: Handle,
    body: impl FnOnce(CardView<'_>) -> Result<(), Failure>,
) -> u32 {
    guard(|| {
        let context = enter(function, |machine| handle.index(machine.cards.len()).ok())?;
        body(context.handle(handle)?)
    })
}

/// Runs a call that finds a card: faults of that card meet it too.
pub fn lookup(
    function: &'static str,
    find: impl Fn(&Machine) -> Result<u32, Failure>,
    device: super::ffi::Out<Handle>,
) -> u32 {
    guard(|| {
        let context = enter(function, |machine| find(machine).ok())?;
        let view = context.card(find(context.machine())?)?;
        device.set(Handle::of(view.card.index))
    })
}

/// Turns the outcome into a return code. A panic of ours must not cross into a foreign caller.
pub fn guard(body: impl FnOnce() -> Result<(), Failure>) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(Failure(code))) => code,
        Err(_) => Failure::UNKNOWN.0,
    }
}

/// Looks the machine up and lets the faults that were ordered for this call happen.
fn enter(function: &'static str, card: impl FnOnce(&Machine) -> Option<u32>) -> Result<Context, Failure> {
    let session = session::current()?;
    let snapshot = session.snapshot();
    if snapshot.state.faults.is_empty() {
        return Ok(Context { session, snapshot });
    }
    let card = card(&session.machine);
    suffer(&session, &snapshot.state, function, card)?;
    Ok(Context { snapshot: session.snapshot(), session })
}

/// Lets faults happen: all delays that meet the call, then the first error.
pub fn suffer(session: &Session, state: &State, function: &str, card: Option<u32>) -> Result<(), Failure> {
    if !state.faults.iter().any(|fault| fault.meets(function, card)) {
        return Ok(());
    }
    let counted = state.faults.iter().any(|fault| fault.remaining.is_some() && fault.meets(function, card));
    let effects: Vec<FaultEffect> = if counted {
        // The count is shared by all processes, so whether a fault still has a turn is decided under the lock.
        session.store.update(|state| {
            let mut effects = Vec::new();
            for fault in state.faults.iter_mut().filter(|fault| fault.meets(function, card)) {
                fault.remaining = fault.remaining.map(|remaining| remaining - 1);
                effects.push(fault.effect);
            }
            state.faults.retain(|fault| fault.remaining != Some(0));
            Ok::<_, Failure>(effects)
        })?
    } else {
        state.faults.iter().filter(|fault| fault.meets(function, card)).map(|fault| fault.effect).collect()
    };
    for effect in &effects {
        if let FaultEffect::Delay(milliseconds) = effect {
            std::thread::sleep(Duration::from_millis(*milliseconds));
        }
    }
    match effects
        .iter()
        .find_map(|effect| if let FaultEffect::Error(code) = effect { Some(*code) } else { None })
    {
        Some(code) => Err(Failure(code)),
        None => Ok(()),
    }
}

/// Exports functions of `nvml.h`. The first form concerns a card, the second the machine.
macro_rules! nvml_functions {
    ($($(#[$attribute:meta])* fn $name:ident($card:ident: CardView $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            $(#[$attribute])*
            /// # Safety
            /// Pointers must be null or valid for what `nvml.h` says of them.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(device: $crate::nvml::call::Handle $(, $argument: $type)*) -> u32 {
                $crate::nvml::call::device(stringify!($name), device, |$card| $body)
            }
        )*
    };
    ($($(#[$attribute:meta])* fn $name:ident($context:ident: &Context $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            $(#[$attribute])*
            /// # Safety
            /// Pointers must be null or valid for what `nvml.h` says of them.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
                $crate::nvml::call::system(stringify!($name), |$context| $body)
            }
        )*
    };
}
pub(super) use nvml_functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_handles_are_cards() {
        assert_eq!(Handle::of(3).index(4), Ok(3));
        assert_eq!(Handle::of(4).index(4), Err(Failure::INVALID_ARGUMENT));
        assert_eq!(Handle(std::ptr::null_mut()).index(4), Err(Failure::INVALID_ARGUMENT));
        let crooked = Handle(std::ptr::without_provenance_mut(HANDLE_BASE + 1));
        assert_eq!(crooked.index(4), Err(Failure::INVALID_ARGUMENT));
    }

    #[test]
    fn codes_have_names() {
        assert_eq!(Failure::from_name("GPU_IS_LOST"), Some(Failure::GPU_IS_LOST));
        assert_eq!(Failure::from_name("NVML_ERROR_UNKNOWN"), Some(Failure::UNKNOWN));
        assert_eq!(Failure::from_name("nonsense"), None);
        for name in Failure::NAMES {
            assert_eq!(Failure::from_name(name).and_then(Failure::name), Some(*name));
        }
    }
}
