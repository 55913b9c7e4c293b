//! What Tessera needs of the NVIDIA driver, as one trait.
//!
//! [`Nvml`] is implemented by `Library` over `libnvidia-ml.so.1`; tests load the emulator's library the same way.

/// A PCI address as NVML gives it (`nvmlPciInfo_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    /// PCI domain.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number on the bus.
    pub device: u8,
}

/// What tells one card from another, read at the moment of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Position in this boot's enumeration (`nvmlDeviceGetIndex`).
    pub index: u32,
    /// `N` of `/dev/nvidiaN` (`nvmlDeviceGetMinorNumber`).
    pub minor: u32,
    /// `GPU-…` (`nvmlDeviceGetUUID`).
    pub uuid: String,
    /// Whether MIG mode is on now; `None` where the card has no MIG (`nvmlDeviceGetMigMode`).
    pub mig_mode: Option<bool>,
}

/// Why the driver did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NvmlError {
    /// The library answered with an error code.
    #[error("{function}: {text} (NVML error {code})")]
    Call {
        /// The NVML function.
        function: &'static str,
        /// `nvmlReturn_t`.
        code: u32,
        /// `nvmlErrorString` of the code.
        text: String,
    },
}

/// The driver of one machine. Calls block, some for seconds: from async code, use a blocking thread.
pub trait Nvml: Send + Sync + 'static {
    /// Reads what tells the card at `address` from others.
    ///
    /// # Errors
    /// [`NvmlError::Call`] when no card answers at that address, or it is lost.
    fn identify(&self, address: PciAddress) -> Result<Identity, NvmlError>;
}
