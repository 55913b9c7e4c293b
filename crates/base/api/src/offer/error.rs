/// Why an offer is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// An unknown field, or one of another type.
    #[error("{0}")]
    Invalid(String),
    /// A value out of range, or in contradiction with another.
    #[error("{field}: {reason}")]
    Value {
        /// Path of the field.
        field: &'static str,
        /// The fault, and the valid values.
        reason: String,
    },
}
