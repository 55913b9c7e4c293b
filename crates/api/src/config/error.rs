use super::{API_VERSION, DeviceConfig, NVIDIA_API_VERSION, NVIDIA_DRIVER_NAME};

/// Why a configuration object is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The parameters are not a JSON object.
    #[error("the parameters are not an object with apiVersion, kind and settings; kinds are {}", kinds())]
    Form,
    /// `apiVersion` or `kind` is missing or not a string.
    #[error("the object has no {0}; apiVersion is {API_VERSION}, kinds are {kinds}", kinds = kinds())]
    Missing(&'static str),
    /// `apiVersion` is unknown.
    #[error("apiVersion {0:?} is not known: expected {API_VERSION}")]
    ApiVersion(String),
    /// The object is one of NVIDIA's, but the driver does not have NVIDIA's name.
    #[error(
        "apiVersion {NVIDIA_API_VERSION} is understood only where the driver's name is {NVIDIA_DRIVER_NAME} (chart value \
         driverName); this driver is {0}: write the object with apiVersion {API_VERSION}"
    )]
    NvidiaApiVersion(String),
    /// There is no such kind.
    #[error("kind {0:?} is not known; kinds of {API_VERSION} are {kinds}", kinds = kinds())]
    Kind(String),
    /// NVIDIA's driver has this kind, for a feature that this driver does not have.
    #[error("{kind} of {NVIDIA_API_VERSION} is not supported: {reason}")]
    Unsupported {
        /// The kind.
        kind: &'static str,
        /// The missing feature.
        reason: &'static str,
    },
    /// A setting is unknown or has an invalid value.
    #[error("{kind}: {reason}")]
    Invalid {
        /// The object's kind.
        kind: String,
        /// What is wrong, with what is valid.
        reason: String,
    },
}

fn kinds() -> String {
    DeviceConfig::KINDS.join(", ")
}

/// The beginning of what a user wrote, for an error message.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(300).collect()
}
