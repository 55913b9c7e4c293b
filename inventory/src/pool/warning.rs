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
    /// Two cards have the same PCI address; the second is not published.
    #[error("card {0} is enumerated twice: the second one is not published")]
    Duplicate(PciBusId),
}
