/// Why an offer is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// An unknown field, or one of another type.
    #[error("{0}")]
    Invalid(String),
    /// A value that is out of range, or contradicts another.
    #[error("{field}: {reason}")]
    Value {
        /// Path of the field.
        field: &'static str,
        /// What is wrong with it, and what is right.
        reason: String,
    },
}
