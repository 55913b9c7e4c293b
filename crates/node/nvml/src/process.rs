/// A process on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id in the host's namespace, where the driver was loaded. 0 on some drivers, when read from another
    /// namespace.
    pub pid: u32,
    /// The kind of use.
    pub kind: ProcessKind,
    /// Bytes of the card's memory held by the process, if reported by the driver.
    pub used_memory: Option<u64>,
    /// The MIG GPU instance of the process.
    pub gpu_instance: Option<u32>,
    /// The MIG compute instance of the process.
    pub compute_instance: Option<u32>,
}

/// Kinds of use of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProcessKind {
    /// A CUDA context.
    Compute,
    /// A graphics context.
    Graphics,
    /// A client of an MPS server.
    Mps,
}
