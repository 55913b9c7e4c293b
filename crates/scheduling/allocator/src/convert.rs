//! Conversion from Kubernetes' objects to this crate's types.

mod claim;
mod node;
mod slice;

/// An unusable object. The API server accepts no such object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// An invalid quantity.
    #[error("{at}: {reason}: write a quantity such as 40Gi or 500m")]
    Quantity {
        /// Its path in the object.
        at: String,
        /// The parse error.
        reason: tessera_api::quantity::QuantityError,
    },
    /// More devices or values than 32 bits can count.
    #[error("more than {0} devices or values: leave some out")]
    TooMany(u32),
}
