//! Names of the capacities of published devices, all in the driver's domain.

/// Memory in bytes, as a BinarySI quantity.
pub const MEMORY: &str = "memory";
/// Streaming multiprocessors of a MIG partition.
pub const MULTIPROCESSORS: &str = "multiprocessors";
/// Copy engines of a MIG partition.
pub const COPY_ENGINES: &str = "copyEngines";
/// Video decoders of a MIG partition.
pub const DECODERS: &str = "decoders";
/// Video encoders of a MIG partition.
pub const ENCODERS: &str = "encoders";
/// JPEG engines of a MIG partition.
pub const JPEG_ENGINES: &str = "jpegEngines";
/// Optical flow accelerators of a MIG partition.
pub const OFA_ENGINES: &str = "ofaEngines";
/// Share of the streaming multiprocessors of an MPS-shared card, in percent (1–100).
pub const COMPUTE: &str = "compute";
/// Number of client processes that a claim on an MPS-shared card declares.
pub const CLIENTS: &str = "clients";
/// Time-slices of a time-sliced card.
pub const SLOTS: &str = "slots";
