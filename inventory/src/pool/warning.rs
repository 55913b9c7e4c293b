use tessera_api::PciBusId;

/// Something of the machine that could not be published.
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
        /// What the driver said.
        bytes: u64,
    },
    /// A card has more memory slices than a counter set can count; it is published as one slice.
    #[error(
        "card {card} says that it has {slices} memory slices; Kubernetes can count 32: it is published as one"
    )]
    MemorySlices {
        /// The card.
        card: PciBusId,
        /// What the driver said.
        slices: u32,
    },
    /// MIG mode is on, so no program can use the card as a whole.
    #[error(
        "card {0} is not published as a whole card: MIG mode is on; turn it off (nvidia-smi -mig 0) to use it whole"
    )]
    MigModeOn(PciBusId),
    /// More cards than groups are made for.
    #[error("the machine has {0} cards; above 64 they are published by PCI address, without groups")]
    NoGroups(usize),
    /// A held device was found published with counters that no counter set covers, as after an edit by hand.
    #[error(
        "device {0} is held by a claim but its counters are gone: its card is not protected until the claim ends"
    )]
    HeldWithoutCounters(String),
}
