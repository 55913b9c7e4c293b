//! Data available to a call: the machine, one card, a GPU instance, a MIG device.

use std::sync::Arc;

use super::faults::suffer;
use super::handle::{Handle, Object};
use super::session::{Session, Snapshot};
use crate::directory::capabilities;
use crate::failure::Failure;
use crate::hardware::mig::{GpuInstanceProfile, MigModel};
use crate::machine::{Card, Machine};
use crate::state::fault::PARTS;
use crate::state::mig::{ComputeInstance, GpuInstance};
use crate::state::{CardState, Meter, Moment, State, meter};

/// Data available to a call.
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

    /// Changes the machine's state.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn update(&self, change: impl FnOnce(&mut State)) -> Result<(), Failure> {
        self.session.store.update(|state| {
            change(state);
            Ok(())
        })
    }

    /// The card with this index, if present and answering.
    ///
    /// # Errors
    /// [`Failure::GPU_IS_LOST`] for a card fallen off the bus, and for one taken out or replaced since the process
    /// opened the machine.
    pub fn card(&self, index: u32) -> Result<CardView<'_>, Failure> {
        let card = self.machine().cards.get(index as usize).ok_or(Failure::INVALID_ARGUMENT)?;
        let state = self.state().cards.get(index as usize).ok_or(Failure::UNKNOWN)?;
        if self.machine().empty_slots.contains(&index) {
            return Err(Failure::INVALID_ARGUMENT);
        }
        if state.lost || !self.session.has(index, state) {
            return Err(Failure::GPU_IS_LOST);
        }
        Ok(CardView { context: self, card, state })
    }

    /// The card behind a handle, if answering.
    ///
    /// # Errors
    /// [`Failure::INVALID_ARGUMENT`] unless the handle is of a card or a MIG device, [`Failure::GPU_IS_LOST`] for a
    /// lost card, [`Failure::NOT_SUPPORTED`] for a MIG device, since most functions know only cards.
    pub fn handle(&self, handle: Handle) -> Result<CardView<'_>, Failure> {
        match self.device(handle)? {
            Device::Card(view) => Ok(view),
            Device::Mig(_) => Err(Failure::NOT_SUPPORTED),
        }
    }

    /// The card or MIG device behind a handle, if answering.
    ///
    /// # Errors
    /// [`Failure::INVALID_ARGUMENT`] unless the handle is of a card or of an existing MIG device,
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
    /// The call's context.
    pub context: &'context Context,
    /// Its fixed properties.
    pub card: &'context Card,
    /// The changing part.
    pub state: &'context CardState,
}

/// Possible objects of an `nvmlDevice_t`.
pub enum Device<'context> {
    /// A card.
    Card(CardView<'context>),
    /// A MIG device.
    Mig(MigView<'context>),
}

impl<'context> Device<'context> {
    /// Its card.
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
    /// The instance.
    pub instance: &'context GpuInstance,
}

/// One compute instance, and so one MIG device, in a call.
#[derive(Clone, Copy)]
pub struct MigView<'context> {
    /// Its GPU instance.
    pub gpu: GpuInstanceView<'context>,
    /// The instance.
    pub instance: &'context ComputeInstance,
}

impl<'context> CardView<'context> {
    /// Changes the state of this card.
    ///
    /// # Errors
    /// [`Failure::NO_PERMISSION`] if the machine's files are not writable.
    pub fn update(&self, change: impl FnOnce(&mut CardState) -> Result<(), Failure>) -> Result<(), Failure> {
        let index = self.card.index as usize;
        self.context.session.store.update(|state| change(state.cards.get_mut(index).ok_or(Failure::UNKNOWN)?))
    }

    /// Changes the partitions of this card, and the files showing them.
    ///
    /// # Errors
    /// [`Failure::NO_PERMISSION`] if the machine's files are not writable, or the error of `change`.
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

    /// The card's counters up to now.
    pub fn meter(&self) -> Meter {
        self.state.meter.at(self.state, meter::now())
    }

    /// Applies the faults for a part of a function's answer: a field, a metric, a clock.
    ///
    /// # Errors
    /// The fault's error.
    pub fn part(&self, name: &'static str) -> Result<(), Failure> {
        debug_assert!(PARTS.contains(&name), "{name}");
        let state = self.context.state();
        if state.faults.iter().all(|fault| fault.call.as_deref() != Some(name)) {
            return Ok(());
        }
        suffer(&self.context.session, state, name, Some(self.card.index), Moment::Before)
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

    /// A GPU instance of this card with its profile.
    ///
    /// # Errors
    /// [`Failure::UNKNOWN`] if the state does not match the machine.
    pub fn look_at(&self, instance: &'context GpuInstance) -> Result<GpuInstanceView<'context>, Failure> {
        let model = self.model()?;
        let profile = model.profile(instance.profile).ok_or(Failure::UNKNOWN)?;
        Ok(GpuInstanceView { view: *self, model, profile, instance })
    }
}
