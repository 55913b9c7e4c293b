/// Why a node configuration is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeConfigError {
    /// Not an object.
    #[error("what nodes offer must be an object with apiVersion, kind and configs")]
    NoObject,
    /// Another kind or version of object.
    #[error("{name} must be {expected}, not {found}")]
    Kind {
        /// The field.
        name: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is, as JSON.
        found: String,
    },
    /// An unknown field, or one of another type.
    #[error("{0}")]
    Invalid(String),
    /// One of several configurations is wrong.
    #[error("configuration {name:?}: {error}")]
    Config {
        /// Its name.
        name: String,
        /// What is wrong.
        error: Box<NodeConfigError>,
    },
    /// There is no configuration of that name.
    #[error("there is no configuration {name:?}; there are {known}")]
    Unknown {
        /// The requested one.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A value that is out of range, or contradicts another.
    #[error("{field}: {reason}")]
    Value {
        /// Path of the field.
        field: &'static str,
        /// What is wrong with it, and what is right.
        reason: String,
    },
}
