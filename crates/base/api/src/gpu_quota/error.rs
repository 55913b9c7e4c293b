/// Why the spec of a GpuQuota is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuQuotaError {
    /// An unknown field, or one of another type.
    #[error("{0}")]
    Invalid(String),
    /// A value out of range, or in contradiction with another.
    #[error("{field}: {reason}")]
    Value {
        /// Path of the field.
        field: String,
        /// The fault, and the valid values.
        reason: String,
    },
}

impl GpuQuotaError {
    pub(super) fn value(field: impl Into<String>, reason: impl Into<String>) -> Self {
        GpuQuotaError::Value { field: field.into(), reason: reason.into() }
    }
}
