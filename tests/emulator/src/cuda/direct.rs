//! A context of its own, without MPS.

use super::contexts::Owner;
use super::device::Device;
use crate::mps::{DEVICE_UNAVAILABLE, OUT_OF_MEMORY};
use crate::state::{Context, ProcessKind, State, Store, StoreError};

/// `NVML_COMPUTEMODE_PROHIBITED`
pub const PROHIBITED: u32 = 2;
/// `NVML_COMPUTEMODE_EXCLUSIVE_PROCESS`
pub const EXCLUSIVE_PROCESS: u32 = 3;

/// Why a request to a card failed.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// An error of CUDA.
    #[error("{}", crate::mps::error_name(*.0))]
    Code(u32),
    /// The emulated machine cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A process's own context on a card.
#[derive(Debug)]
pub struct Direct {
    owner: Owner,
    device: Device,
    pid: u32,
    held: u64,
}

impl Direct {
    /// Makes a context.
    ///
    /// # Errors
    /// [`DEVICE_UNAVAILABLE`] if the card's compute mode does not allow one.
    pub fn new(store: &Store, device: &Device) -> Result<Self, CudaError> {
        let owner = Owner::new(store)?;
        let pid = std::process::id();
        let process = device.process(pid, 0, ProcessKind::Compute);
        owner.put(device.card, process, |state| admit(state, device))?;
        Ok(Direct { owner, device: device.clone(), pid, held: 0 })
    }

    /// Sets the held memory, bytes.
    ///
    /// # Errors
    /// [`OUT_OF_MEMORY`] if the card has too little free memory.
    pub fn hold(&mut self, bytes: u64) -> Result<(), CudaError> {
        hold(&self.owner, &self.device, self.pid, ProcessKind::Compute, self.held, bytes)?;
        self.held = bytes;
        Ok(())
    }

    /// Keeps the card busy for this percentage of the time.
    ///
    /// # Errors
    /// When the emulated machine cannot be written.
    pub fn keep_busy(&self, percent: u32) -> Result<(), StoreError> {
        let context = Context { card: self.device.card, pid: self.pid, kind: ProcessKind::Compute };
        self.owner.keep_busy(context, percent)
    }

    /// Held memory, bytes.
    pub fn held(&self) -> u64 {
        self.held
    }
}

/// Checks whether the compute mode allows one more process.
///
/// # Errors
/// [`DEVICE_UNAVAILABLE`] otherwise.
pub fn admit(state: &State, device: &Device) -> Result<(), CudaError> {
    let card = state.cards.get(device.card).ok_or(CudaError::Code(crate::mps::NO_DEVICE))?;
    let is_used = card.processes.iter().any(|process| process.kind == ProcessKind::Compute);
    match card.compute_mode {
        PROHIBITED => Err(CudaError::Code(DEVICE_UNAVAILABLE)),
        // A card with partitions has no such mode: each partition may have a server.
        EXCLUSIVE_PROCESS if is_used && device.instances.is_none() => {
            Err(CudaError::Code(DEVICE_UNAVAILABLE))
        }
        _ => Ok(()),
    }
}

/// Changes a process's memory from `before` to `bytes`, if the device has enough.
///
/// # Errors
/// [`OUT_OF_MEMORY`] otherwise.
pub fn hold(
    owner: &Owner,
    device: &Device,
    pid: u32,
    kind: ProcessKind,
    before: u64,
    bytes: u64,
) -> Result<(), CudaError> {
    let gpu_instance = device.instances.map(|(gpu, _)| gpu);
    owner.put(device.card, device.process(pid, bytes, kind), |state| {
        let used: u64 = state.cards[device.card]
            .processes
            .iter()
            .filter(|process| process.gpu_instance == gpu_instance)
            .map(|process| process.used_memory_bytes)
            .sum();
        let others = used.saturating_sub(before);
        if others.saturating_add(bytes) > device.memory {
            return Err(CudaError::Code(OUT_OF_MEMORY));
        }
        Ok(())
    })
}
