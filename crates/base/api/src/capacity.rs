//! Names of the capacities of published devices, all in the driver's domain.

/// Memory in bytes, as a BinarySI quantity.
pub const MEMORY: &str = "memory";
// The next six capacities: for a MIG partition its own resources; for a whole card with MIG the most that one of its partitions can
// have, as in NVIDIA's driver.

/// Streaming multiprocessors.
pub const MULTIPROCESSORS: &str = "multiprocessors";
/// Copy engines.
pub const COPY_ENGINES: &str = "copyEngines";
/// Video decoders.
pub const DECODERS: &str = "decoders";
/// Video encoders.
pub const ENCODERS: &str = "encoders";
/// JPEG engines.
pub const JPEG_ENGINES: &str = "jpegEngines";
/// Optical flow accelerators.
pub const OFA_ENGINES: &str = "ofaEngines";

/// A memory slice occupied by an existing MIG partition, 1 each: `memorySlice4`.
#[must_use]
pub fn memory_slice(index: u32) -> String {
    format!("memorySlice{index}")
}

/// Share of the streaming multiprocessors of an MPS-shared card, in percent (1–100).
pub const COMPUTE: &str = "compute";
/// Number of client processes declared by a claim on an MPS-shared card.
pub const CLIENTS: &str = "clients";
/// Time-slices of a time-sliced card.
pub const SLOTS: &str = "slots";
/// Shares of a whole card or a partition held by a fixed number of claims at once; a name of NVIDIA's driver.
pub const SHARES: &str = "shares";
