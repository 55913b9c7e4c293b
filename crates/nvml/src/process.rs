/// A process that uses a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id in the namespace the driver was loaded in: the host's. 0 on some drivers, when read from another
    /// namespace.
    pub pid: u32,
    /// How it uses the card.
    pub kind: ProcessKind,
    /// Bytes of the card's memory that it holds, if the driver tells.
    pub used_memory: Option<u64>,
    /// The MIG GPU instance it runs in.
    pub gpu_instance: Option<u32>,
    /// The MIG compute instance it runs in.
    pub compute_instance: Option<u32>,
}

/// How a process uses a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProcessKind {
    /// It has a CUDA context.
    Compute,
    /// It has a graphics context.
    Graphics,
    /// It is a client of an MPS server.
    Mps,
}
