//! Errors of CDI specs.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tessera_journal::hint;

/// Why a claim's CDI spec could not be made or written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CdiError {
    /// The driver's name can't be a CDI vendor.
    #[error(
        "driver name {0:?} can't be used as a CDI vendor: it must begin with a letter, end with a letter or digit and \
         have only letters, digits, '.', '-' and '_'; choose another --driver-name"
    )]
    Vendor(String),
    /// A spec could not be read, written or removed.
    #[error("cannot {action} CDI spec {path}: {source}{}", hint(.source))]
    Io {
        /// The failed action, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
}

impl CdiError {
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { action, path: path.into(), source: Arc::new(source) }
    }
}
