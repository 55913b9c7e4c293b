use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::JournalError;
use crate::file_system::FileSystem;

/// Distinguishes one boot of the machine from another (`/proc/sys/kernel/random/boot_id`).
///
/// A claim prepared in another boot counts as not prepared: the CDI directory is in memory, and partitions are gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(String);

impl BootId {
    /// Reads the id of the current boot below `proc_root` (`/proc` on a real machine).
    ///
    /// # Errors
    /// [`JournalError::BootId`] where the file can't be read or is empty.
    pub fn read(file_system: &dyn FileSystem, proc_root: &Path) -> Result<Self, JournalError> {
        let path = proc_root.join("sys/kernel/random/boot_id");
        let bytes = file_system
            .read(&path)
            .map_err(|error| JournalError::BootId { path: path.clone(), reason: error.to_string() })?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        if text.is_empty() || text.len() > 128 {
            return Err(JournalError::BootId { path, reason: "it holds no boot id".into() });
        }
        Ok(Self(text))
    }
}

impl From<&str> for BootId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
