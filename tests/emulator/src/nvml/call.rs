//! Runs the calls of the library: initialisation, faults, turns and return codes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::context::{CardView, Context, Device, GpuInstanceView, MigView};
use super::faults::suffer;
use super::ffi::Out;
use super::handle::{Handle, Object};
use super::session::{self, Snapshot};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::state::{Moment, State};

/// Runs a call without a card.
pub fn system(function: &'static str, body: impl FnOnce(&Context) -> Result<(), Failure>) -> u32 {
    run(function, |_, _| None, false, body)
}

/// Runs a call on a card.
pub fn device(
    function: &'static str,
    handle: Handle,
    body: impl FnOnce(CardView<'_>) -> Result<(), Failure>,
) -> u32 {
    run(function, of(handle), false, |context| body(context.handle(handle)?))
}

/// Runs a change of a card's partitions: one at a time for each card, including delays, as in the driver.
pub fn device_in_turn(
    function: &'static str,
    handle: Handle,
    body: impl FnOnce(CardView<'_>) -> Result<(), Failure>,
) -> u32 {
    run(function, of(handle), true, |context| body(context.handle(handle)?))
}

/// Runs a call on a card or a MIG device.
pub fn any_device(
    function: &'static str,
    handle: Handle,
    body: impl FnOnce(Device<'_>) -> Result<(), Failure>,
) -> u32 {
    run(function, of(handle), false, |context| body(context.device(handle)?))
}

/// Runs a call on a GPU instance; `in_turn` as [`device_in_turn`].
pub fn gpu_instance(
    function: &'static str,
    handle: Handle,
    in_turn: bool,
    body: impl FnOnce(GpuInstanceView<'_>) -> Result<(), Failure>,
) -> u32 {
    run(function, of(handle), in_turn, |context| match handle.object(context.machine().cards.len())? {
        Object::GpuInstance(card, serial) => body(context.card(card)?.gpu_instance(serial)?),
        _ => Err(Failure::INVALID_ARGUMENT),
    })
}

/// Runs a call on a compute instance; `in_turn` as [`device_in_turn`].
pub fn compute_instance(
    function: &'static str,
    handle: Handle,
    in_turn: bool,
    body: impl FnOnce(MigView<'_>) -> Result<(), Failure>,
) -> u32 {
    run(function, of(handle), in_turn, |context| match handle.object(context.machine().cards.len())? {
        Object::ComputeInstance(card, serial) => body(context.card(card)?.compute_instance(serial)?),
        _ => Err(Failure::INVALID_ARGUMENT),
    })
}

/// The card of a handle, as far as faults are concerned.
fn of(handle: Handle) -> impl Fn(&Snapshot, &Machine) -> Option<u32> {
    move |_, machine| handle.index(machine.cards.len()).ok()
}

/// Runs a lookup of a card or a MIG device; faults of the found card apply to the call, too.
pub fn lookup(
    function: &'static str,
    find: impl Fn(&Machine, &State) -> Result<Object, Failure>,
    device: Out<Handle>,
) -> u32 {
    let cards = |machine: &Machine| machine.cards.len();
    let card = |snapshot: &Snapshot, machine: &Machine| {
        Handle::to(find(machine, &snapshot.state).ok()?).index(cards(machine)).ok()
    };
    run(function, card, false, |context| {
        let found = Handle::to(find(context.machine(), context.state())?);
        context.device(found)?;
        device.set(found)
    })
}

/// Applies the faults before the call, runs the call, and applies the faults after it.
fn run(
    function: &'static str,
    card: impl Fn(&Snapshot, &Machine) -> Option<u32>,
    in_turn: bool,
    body: impl FnOnce(&Context) -> Result<(), Failure>,
) -> u32 {
    guard(|| {
        let session = session::current()?;
        let mut snapshot = session.snapshot();
        if !session.has_its_driver(&snapshot.state) {
            return Err(Failure::LIB_RM_VERSION_MISMATCH);
        }
        let card = card(&snapshot, &session.machine);
        let turn = match card.filter(|_| in_turn) {
            Some(card) => Some(session.store.turn(card)?),
            None => None,
        };
        if turn.is_some() || !snapshot.state.faults.is_empty() {
            suffer(&session, &session.snapshot().state, function, card, Moment::Before)?;
            snapshot = session.snapshot();
        }
        let context = Context { session, snapshot };
        body(&context)?;
        if context.state().faults.is_empty() {
            return Ok(());
        }
        let snapshot = context.session.snapshot();
        let outcome = suffer(&context.session, &snapshot.state, function, card, Moment::After);
        drop(turn);
        outcome
    })
}

/// Turns the outcome into a return code. A panic must not unwind into a foreign caller.
pub fn guard(body: impl FnOnce() -> Result<(), Failure>) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(Failure(code))) => code,
        Err(_) => Failure::UNKNOWN.0,
    }
}

/// Exports functions of `nvml.h`. The type of the first argument selects the runner: for a card, a card or a MIG
/// device, a GPU instance, a compute instance, or the machine. `…InTurn` is for changes of partitions: one at
/// a time for each card.
macro_rules! nvml_functions {
    (@one $(#[$attribute:meta])* $name:ident, $runner:ident, [$($turn:expr)?], $subject:ident, [$($argument:ident: $type:ty),*], $body:block) => {
        $(#[$attribute])*
        /// # Safety
        /// Pointers must be null or valid as `nvml.h` requires.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: $crate::nvml::handle::Handle $(, $argument: $type)*) -> u32 {
            $crate::nvml::call::$runner(stringify!($name), handle, $($turn,)? |$subject| $body)
        }
    };
    ($($(#[$attribute:meta])* fn $name:ident($device:ident: Device $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(nvml_functions! { @one $(#[$attribute])* $name, any_device, [], $device, [$($argument: $type),*], $body })*
    };
    ($($(#[$attribute:meta])* fn $name:ident($card:ident: CardViewInTurn $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(nvml_functions! { @one $(#[$attribute])* $name, device_in_turn, [], $card, [$($argument: $type),*], $body })*
    };
    ($($(#[$attribute:meta])* fn $name:ident($gpu:ident: GpuInstanceView $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(nvml_functions! { @one $(#[$attribute])* $name, gpu_instance, [false], $gpu, [$($argument: $type),*], $body })*
    };
    ($($(#[$attribute:meta])* fn $name:ident($gpu:ident: GpuInstanceViewInTurn $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(nvml_functions! { @one $(#[$attribute])* $name, gpu_instance, [true], $gpu, [$($argument: $type),*], $body })*
    };
    ($($(#[$attribute:meta])* fn $name:ident($compute:ident: MigView $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(nvml_functions! { @one $(#[$attribute])* $name, compute_instance, [false], $compute, [$($argument: $type),*], $body })*
    };
    ($($(#[$attribute:meta])* fn $name:ident($compute:ident: MigViewInTurn $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(nvml_functions! { @one $(#[$attribute])* $name, compute_instance, [true], $compute, [$($argument: $type),*], $body })*
    };
    ($($(#[$attribute:meta])* fn $name:ident($card:ident: CardView $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            $(#[$attribute])*
            /// # Safety
            /// Pointers must be null or valid as `nvml.h` requires.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(device: $crate::nvml::handle::Handle $(, $argument: $type)*) -> u32 {
                $crate::nvml::call::device(stringify!($name), device, |$card| $body)
            }
        )*
    };
    ($($(#[$attribute:meta])* fn $name:ident($context:ident: &Context $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            $(#[$attribute])*
            /// # Safety
            /// Pointers must be null or valid as `nvml.h` requires.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
                $crate::nvml::call::system(stringify!($name), |$context| $body)
            }
        )*
    };
}
pub(super) use nvml_functions;
