use crate::{
    Card, CudaVersion, Event, EventWatch, Identity, Memory, NvmlError, Pair, PciAddress, Process, Reading,
    Utilization,
};

/// The driver of one machine. Calls block, some for seconds: from async code, use a blocking thread.
///
/// A method left at its default answers as a driver that lacks the function does, so that a stand-in in a test says only
/// what it is about.
pub trait Nvml: Send + Sync + 'static {
    /// Reads what tells the card at `address` from others.
    ///
    /// # Errors
    /// [`NvmlError::Call`] when no card answers at that address, or it is lost.
    fn identify(&self, address: PciAddress) -> Result<Identity, NvmlError>;

    /// The driver's version as it writes it, `580.95.05`: also the ending of its libraries' file names. Parse it into a
    /// [`DriverVersion`](crate::DriverVersion) to compare it.
    ///
    /// # Errors
    /// Where the driver doesn't answer.
    fn driver_version(&self) -> Result<String, NvmlError> {
        missing("nvmlSystemGetDriverVersion")
    }

    /// The newest CUDA the driver runs.
    ///
    /// # Errors
    /// Where the driver doesn't answer.
    fn cuda_version(&self) -> Result<CudaVersion, NvmlError> {
        missing("nvmlSystemGetCudaDriverVersion_v2")
    }

    /// Every card of the machine in the order of NVML's indexes; an error in the place of a card that can't be reached.
    ///
    /// # Errors
    /// Where the driver doesn't answer.
    fn addresses(&self) -> Result<Vec<Result<PciAddress, NvmlError>>, NvmlError> {
        missing("nvmlDeviceGetCount_v2")
    }

    /// Reads all there is to read of one card.
    ///
    /// # Errors
    /// When no card answers at that address, or it is lost. A single failing query is an error of its own field.
    fn card(&self, _address: PciAddress) -> Result<Card, NvmlError> {
        missing("nvmlDeviceGetHandleByPciBusId_v2")
    }

    /// Reads how two cards reach each other.
    ///
    /// # Errors
    /// When one of the cards doesn't answer at all.
    fn pair(&self, _one: PciAddress, _other: PciAddress) -> Result<Pair, NvmlError> {
        missing("nvmlDeviceGetTopologyCommonAncestor")
    }

    /// Reads a card's memory; `None` where it has none of its own.
    ///
    /// # Errors
    /// When the card doesn't answer.
    fn memory(&self, _address: PciAddress) -> Reading<Memory> {
        Ok(None)
    }

    /// Reads how busy a card is; `None` while its MIG mode is on.
    ///
    /// # Errors
    /// When the card doesn't answer.
    fn utilization(&self, _address: PciAddress) -> Reading<Utilization> {
        Ok(None)
    }

    /// The processes that use a card, by process id; one that uses it in several ways is there several times.
    ///
    /// # Errors
    /// When the card doesn't answer.
    fn processes(&self, _address: PciAddress) -> Reading<Vec<Process>> {
        Ok(None)
    }

    /// Hands the driver's events to `sink`, on a thread of their own, until the answer is dropped. `sink` must not block
    /// for long: meanwhile the driver's queue fills.
    ///
    /// # Errors
    /// Where the driver has no events.
    fn watch(&self, _sink: Box<dyn FnMut(Event) + Send>) -> Result<EventWatch, NvmlError> {
        missing("nvmlEventSetCreate")
    }
}

fn missing<T>(function: &'static str) -> Result<T, NvmlError> {
    Err(NvmlError::MissingFunction { function })
}
