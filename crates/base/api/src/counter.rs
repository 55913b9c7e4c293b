//! Names of counter sets and counters, which prevent conflicting allocations of devices of the same card.

use crate::device_name::DeviceName;
use crate::pci_bus_id::PciBusId;
use crate::profile_spelling::ProfileSpelling;

/// The counter set shared by all devices of the card at `card`. A DNS label.
#[must_use]
pub fn set_name(card: PciBusId) -> String {
    format!("{}-counter-set", DeviceName::Card(card))
}

/// Counter of one memory slice of a card, 0 to N−1; a card without MIG has one.
#[must_use]
pub fn memory_slice(number: u32) -> String {
    format!("memory-slice-{number}")
}

/// The number in the name of a memory slice's counter; `None` for another counter.
#[must_use]
pub fn memory_slice_number(counter: &str) -> Option<u32> {
    counter.strip_prefix("memory-slice-")?.parse().ok()
}

/// Counter of the instances of a MIG profile, for profiles allowing fewer instances than their placements have room for.
#[must_use]
pub fn instances(profile: &ProfileSpelling) -> String {
    format!("instances-{profile}")
}

/// Counter of copy engines.
pub const COPY_ENGINES: &str = "copy-engines";
/// Counter of video decoders.
pub const DECODERS: &str = "decoders";
/// Counter of video encoders.
pub const ENCODERS: &str = "encoders";
/// Counter of JPEG engines.
pub const JPEG_ENGINES: &str = "jpeg-engines";
/// Counter of optical flow accelerators.
pub const OFA_ENGINES: &str = "ofa-engines";
