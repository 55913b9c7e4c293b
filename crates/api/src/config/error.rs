use super::{API_VERSION, DeviceConfig, NVIDIA_API_VERSION, NVIDIA_DRIVER_NAME};

/// Why a configuration object is none of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The parameters are no JSON object.
    #[error("the parameters are not an object with apiVersion, kind and settings; kinds are {}", kinds())]
    Form,
    /// `apiVersion` or `kind` is missing, or is no text.
    #[error("the object has no {0}; apiVersion is {API_VERSION}, kinds are {kinds}", kinds = kinds())]
    Missing(&'static str),
    /// `apiVersion` is another.
    #[error("apiVersion {0:?} is not known: expected {API_VERSION}")]
    ApiVersion(String),
    /// The object is one of NVIDIA's, and the driver's name is another.
    #[error(
        "apiVersion {NVIDIA_API_VERSION} is understood only where the driver's name is {NVIDIA_DRIVER_NAME} (chart value \
         driverName); this driver is {0}: write the object with apiVersion {API_VERSION}"
    )]
    NvidiaApiVersion(String),
    /// There is no such kind.
    #[error("kind {0:?} is not known; kinds of {API_VERSION} are {kinds}", kinds = kinds())]
    Kind(String),
    /// There is such a kind of NVIDIA's, for something that this driver does not do.
    #[error("{kind} of {NVIDIA_API_VERSION} is not supported: {reason}")]
    Unsupported {
        /// The kind.
        kind: &'static str,
        /// What is not done.
        reason: &'static str,
    },
    /// A setting is unknown, or has a value that it can't have.
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

/// The beginning of what somebody wrote, for an error.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(300).collect()
}
