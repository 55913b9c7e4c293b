use tessera_api::PciBusId;

use crate::static_partitions::NoStaticPartitions;

/// A fact or device left unpublished.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// A text is longer than the API allows (64 bytes), or has control characters.
    #[error(
        "card {card}: attribute {attribute} is left out: {value:?} is longer than 64 bytes or not plain text"
    )]
    Text {
        /// The card.
        card: PciBusId,
        /// Name of the attribute.
        attribute: &'static str,
        /// The beginning of the text.
        value: String,
    },
    /// A version cannot be written as a semantic version.
    #[error("attribute {attribute} is left out: {value:?} cannot be read as a version")]
    Version {
        /// Name of the attribute.
        attribute: &'static str,
        /// The beginning of the text.
        value: String,
    },
    /// Several cards have one PCI address.
    #[error("several cards are enumerated at PCI address {0}: only one is published")]
    Duplicate(PciBusId),
    /// A card's memory is beyond what Kubernetes can express.
    #[error("card {card}: its memory is left out: {bytes} bytes is no plausible size")]
    Memory {
        /// The card.
        card: PciBusId,
        /// The driver's value.
        bytes: u64,
    },
    /// A card has more memory slices than a counter set can count; it is published as one slice.
    #[error(
        "card {card} says that it has {slices} memory slices; Kubernetes can count 32: it is published as one"
    )]
    MemorySlices {
        /// The card.
        card: PciBusId,
        /// The driver's value.
        slices: u32,
    },
    /// A card's MIG profiles need more counters than a counter set can have; it is not offered as partitions.
    #[error(
        "card {card}: its MIG profiles take {counters} counters; Kubernetes can count 32: no partitions are published"
    )]
    Counters {
        /// The card.
        card: PciBusId,
        /// The number needed.
        counters: usize,
    },
    /// A MIG profile without a placement, or without a unique name that can be part of a device name.
    #[error(
        "card {card}: MIG profile {name:?} is not published: it has no placement, or no usable name of its own"
    )]
    Profile {
        /// The card.
        card: PciBusId,
        /// The beginning of its name.
        name: String,
    },
    /// MIG mode is on, and the driver does not name the profiles or the instances of the card.
    #[error(
        "card {0} is not published: MIG mode is on and the driver does not say what it is or can be partitioned into; turn \
         the mode off to use the card whole (nvidia-smi -mig 0; on Ampere with a reset)"
    )]
    MigModeOn(PciBusId),
    /// MIG instances on the card were created by someone else.
    #[error(
        "card {0} has MIG instances that this driver did not make: they are published as they are, and nothing else of the \
         card; destroy them (nvidia-smi mig -dci, -dgi) to have it partitioned on demand"
    )]
    PartitionedByHand(PciBusId),
    /// Part of a card is taken by a MIG instance unusable for containers.
    #[error("card {card}: GPU instance {gpu_instance} is not published: {reason}")]
    UnusableInstance {
        /// The card.
        card: PciBusId,
        /// Id of the GPU instance.
        gpu_instance: u32,
        /// The reason.
        reason: &'static str,
    },
    /// A device's name would be longer than Kubernetes allows.
    #[error("device {0} is not published: its name is no DNS label of at most 63 characters")]
    DeviceName(String),
    /// A card or partition whose memory is unknown, or too small for its default shares.
    #[error(
        "card {card} is not shared by MPS: of its memory ({} bytes) a default share would be less than 128 MiB",
         .memory.map_or_else(|| "an unknown number of".to_owned(), |bytes| bytes.to_string())
    )]
    NotShared {
        /// The card, or that of the partition.
        card: PciBusId,
        /// Bytes of memory.
        memory: Option<i64>,
    },
    /// A card without support for shares with multiprocessors of their own, as required by the configuration.
    #[error("card {card} is not shared by MPS, since sharing.mps.staticPartitions is on: {reason}")]
    NoStaticPartitions {
        /// The card.
        card: PciBusId,
        /// The reason.
        reason: NoStaticPartitions,
    },
    /// More default shares are configured than the card surely has static partitions.
    #[error(
        "card {card}: sharing.mps.defaultShares of {shares} would be less than one static partition each: a default share is \
         {compute} % of the card's multiprocessors"
    )]
    FewerDefaultShares {
        /// The card.
        card: PciBusId,
        /// The configured number.
        shares: u32,
        /// Percent of the multiprocessors of a default share.
        compute: u32,
    },
    /// The offer sets the length of time-slices, and the card has no such setting.
    #[error(
        "card {card} is not shared by time: its time-slices can't be made {interval}, which takes Volta or later, or a P100; \
         leave timeSlicing.interval out of its GpuPool to share it with slices of the driver's own length"
    )]
    NoTimeSliceLengths {
        /// The card.
        card: PciBusId,
        /// The configured length.
        interval: &'static str,
    },
    /// The card was published with other counters, still in use by a held device.
    #[error(
        "card {0} is published as it was before, without partitions and shares, until the claims on it end: its MIG profiles \
         changed"
    )]
    OldCounters(PciBusId),
    /// More cards than the limit for computing groups.
    #[error("the machine has {0} cards; above 64 they are published by PCI address, without groups")]
    NoGroups(usize),
    /// A held device was published with counters outside every counter set, as after an edit by hand.
    #[error(
        "device {0} is held by a claim but its counters are gone: its card is not protected until the claim ends"
    )]
    HeldWithoutCounters(String),
}
