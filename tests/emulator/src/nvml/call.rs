//! What every call of the library goes through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use super::failure::Failure;
pub use super::handle::{Handle, Object};
use super::session::{self, Session, Snapshot};
use crate::directory::capabilities;
use crate::hardware::mig::{GpuInstanceProfile, MigModel};
use crate::machine::{Card, Machine};
use crate::state::mig::{ComputeInstance, GpuInstance};
use crate::state::{CardState, FaultEffect, Moment, State};

/// What a call may look at.
pub struct Context {
    /// The machine.
    pub session: Arc<Session>,
    /// Its state at the beginning of the call.
    pub snapshot: Arc<Snapshot>,
    /// Keeps other changes of the same card's partitions waiting until the call is over.
    turn: Option<std::fs::File>,
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
    /// [`Failure::INVALID_ARGUMENT`] for what is not the handle of a card or a MIG device, [`Failure::GPU_IS_LOST`] for a
    /// lost card, [`Failure::NOT_SUPPORTED`] for a MIG device, since most functions know only cards.
    pub fn handle(&self, handle: Handle) -> Result<CardView<'_>, Failure> {
        match self.device(handle)? {
            Device::Card(view) => Ok(view),
            Device::Mig(_) => Err(Failure::NOT_SUPPORTED),
        }
    }

    /// The card or MIG device behind a handle, if it answers.
    ///
    /// # Errors
    /// [`Failure::INVALID_ARGUMENT`] for what is not the handle of a card or of a MIG device that exists,
    /// [`Failure::GPU_IS_LOST`] for a lost card.
    pub fn device(&self, handle: Handle) -> Result<Device<'_>, Failure> {
        match handle.object(self.machine().cards.len())? {
            Object::Card(card) => self.card(card).map(Device::Card),
            Object::MigDevice(card, serial) => self.card(card)?.compute_instance(serial).map(Device::Mig),
            Object::GpuInstance(..) | Object::ComputeInstance(..) => Err(Failure::INVALID_ARGUMENT),
        }
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

/// What an `nvmlDevice_t` can be.
pub enum Device<'context> {
    /// A card.
    Card(CardView<'context>),
    /// A MIG device.
    Mig(MigView<'context>),
}

impl<'context> Device<'context> {
    /// The card that it is or is on.
    pub fn card(&self) -> CardView<'context> {
        match self {
            Device::Card(view) => *view,
            Device::Mig(view) => view.gpu.view,
        }
    }
}

/// One GPU instance in a call.
#[derive(Clone, Copy)]
pub struct GpuInstanceView<'context> {
    /// Its card.
    pub view: CardView<'context>,
    /// How its card can be partitioned.
    pub model: &'context MigModel,
    /// Its profile.
    pub profile: &'context GpuInstanceProfile,
    /// What it is.
    pub instance: &'context GpuInstance,
}

/// One compute instance, or the MIG device that it is, in a call.
#[derive(Clone, Copy)]
pub struct MigView<'context> {
    /// Its GPU instance.
    pub gpu: GpuInstanceView<'context>,
    /// What it is.
    pub instance: &'context ComputeInstance,
}

impl<'context> CardView<'context> {
    /// Changes the state of this card.
    ///
    /// # Errors
    /// [`Failure::NO_PERMISSION`] where the machine's files may not be written.
    pub fn update(&self, change: impl FnOnce(&mut CardState) -> Result<(), Failure>) -> Result<(), Failure> {
        let index = self.card.index as usize;
        self.context.session.store.update(|state| change(state.cards.get_mut(index).ok_or(Failure::UNKNOWN)?))
    }

    /// Changes the partitions of this card, and the files that tell of them.
    ///
    /// # Errors
    /// [`Failure::NO_PERMISSION`] where the machine's files may not be written, and what `change` says.
    pub fn partition<T>(
        &self,
        change: impl FnOnce(&MigModel, &mut CardState) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (index, model) = (self.card.index as usize, self.model()?);
        let store = &self.context.session.store;
        store.update(|state| {
            let card = state.cards.get_mut(index).ok_or(Failure::UNKNOWN)?;
            let answer = change(model, card)?;
            capabilities::show(store.root(), self.card, &card.mig).map_err(|error| error.failure())?;
            Ok(answer)
        })
    }

    /// How the card can be partitioned.
    ///
    /// # Errors
    /// [`Failure::NOT_SUPPORTED`] for a card without MIG.
    pub fn model(&self) -> Result<&'context MigModel, Failure> {
        self.card.mig.as_ref().ok_or(Failure::NOT_SUPPORTED)
    }

    /// The GPU instance with a serial number.
    ///
    /// # Errors
    /// [`Failure::INVALID_ARGUMENT`] where there is none.
    pub fn gpu_instance(&self, serial: u64) -> Result<GpuInstanceView<'context>, Failure> {
        let instances = &self.state.mig.instances;
        let instance = instances.iter().find(|gpu| gpu.serial == serial).ok_or(Failure::INVALID_ARGUMENT)?;
        self.look_at(instance)
    }

    /// The compute instance with a serial number.
    ///
    /// # Errors
    /// [`Failure::INVALID_ARGUMENT`] where there is none.
    pub fn compute_instance(&self, serial: u64) -> Result<MigView<'context>, Failure> {
        let (gpu, instance) = self
            .state
            .mig
            .devices()
            .find(|(_, compute)| compute.serial == serial)
            .ok_or(Failure::INVALID_ARGUMENT)?;
        Ok(MigView { gpu: self.look_at(gpu)?, instance })
    }

    /// All about a GPU instance of this card.
    ///
    /// # Errors
    /// [`Failure::UNKNOWN`] where the state does not fit the machine.
    pub fn look_at(&self, instance: &'context GpuInstance) -> Result<GpuInstanceView<'context>, Failure> {
        let model = self.model()?;
        let profile = model.profile(instance.profile).ok_or(Failure::UNKNOWN)?;
        Ok(GpuInstanceView { view: *self, model, profile, instance })
    }
}

/// Runs a call that concerns no card.
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

/// Runs a call that changes a card's partitions: one at a time on each card, as the driver does it, delays included.
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

/// Runs a call that finds a card or a MIG device: faults of that card meet it too.
pub fn lookup(
    function: &'static str,
    find: impl Fn(&Machine, &State) -> Result<Object, Failure>,
    device: super::ffi::Out<Handle>,
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

/// Runs a call between the faults that come before it and those that come after it.
fn run(
    function: &'static str,
    card: impl Fn(&Snapshot, &Machine) -> Option<u32>,
    in_turn: bool,
    body: impl FnOnce(&Context) -> Result<(), Failure>,
) -> u32 {
    guard(|| {
        let session = session::current()?;
        let mut snapshot = session.snapshot();
        let card = card(&snapshot, &session.machine);
        let turn = match card.filter(|_| in_turn) {
            Some(card) => Some(session.store.turn(card)?),
            None => None,
        };
        if turn.is_some() || !snapshot.state.faults.is_empty() {
            suffer(&session, &session.snapshot().state, function, card, Moment::Before)?;
            snapshot = session.snapshot();
        }
        let context = Context { session, snapshot, turn };
        body(&context)?;
        if context.state().faults.is_empty() {
            return Ok(());
        }
        let snapshot = context.session.snapshot();
        let outcome = suffer(&context.session, &snapshot.state, function, card, Moment::After);
        drop(context.turn);
        outcome
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

/// How soon a call that is delayed notices that its fault was taken away.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// Lets faults happen: all delays that meet the call, then the first error.
pub fn suffer(
    session: &Session,
    state: &State,
    function: &str,
    card: Option<u32>,
    moment: Moment,
) -> Result<(), Failure> {
    let meets = |fault: &crate::state::Fault| fault.moment == moment && fault.meets(function, card);
    if !state.faults.iter().any(meets) {
        return Ok(());
    }
    let counted = state.faults.iter().any(|fault| fault.remaining.is_some() && meets(fault));
    let effects: Vec<FaultEffect> = if counted {
        // The count is shared by all processes, so whether a fault still has a turn is decided under the lock.
        session.store.update(|state| {
            let mut effects = Vec::new();
            for fault in state.faults.iter_mut().filter(|fault| meets(fault)) {
                fault.remaining = fault.remaining.map(|remaining| remaining - 1);
                effects.push(fault.effect);
            }
            state.faults.retain(|fault| fault.remaining != Some(0));
            Ok::<_, Failure>(effects)
        })?
    } else {
        state.faults.iter().filter(|fault| meets(fault)).map(|fault| fault.effect).collect()
    };
    for effect in &effects {
        if let FaultEffect::Delay(milliseconds) = effect {
            let until = Instant::now() + Duration::from_millis(*milliseconds);
            // A call that hangs goes on when its fault is taken away.
            while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
                && (counted || session.snapshot().state.faults.iter().any(meets))
            {
                std::thread::sleep(left.min(LONGEST_SLEEP));
            }
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

/// Exports functions of `nvml.h`. The type of the first argument says what a call concerns: a card, a card or a MIG
/// device, a GPU instance, a compute instance (`…InTurn`: it changes partitions, and waits for its turn), or the machine.
macro_rules! nvml_functions {
    (@one $(#[$attribute:meta])* $name:ident, $runner:ident, [$($turn:expr)?], $subject:ident, [$($argument:ident: $type:ty),*], $body:block) => {
        $(#[$attribute])*
        /// # Safety
        /// Pointers must be null or valid for what `nvml.h` says of them.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: $crate::nvml::call::Handle $(, $argument: $type)*) -> u32 {
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
    fn codes_have_names() {
        assert_eq!(Failure::from_name("GPU_IS_LOST"), Some(Failure::GPU_IS_LOST));
        assert_eq!(Failure::from_name("NVML_ERROR_UNKNOWN"), Some(Failure::UNKNOWN));
        assert_eq!(Failure::from_name("nonsense"), None);
        for name in Failure::NAMES {
            assert_eq!(Failure::from_name(name).and_then(Failure::name), Some(*name));
        }
    }
}
