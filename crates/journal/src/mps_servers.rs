//! The MPS servers seen last, for the next instance of the plugin.

use std::collections::BTreeMap;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::boot_id::BootId;
use crate::error::JournalError;
use crate::file_system::replace_by;
use crate::store::Journal;

const NAME: &str = "mps-servers.json";

/// Prefix of temporary file names.
const UNFINISHED: &str = ".mps-servers.";

/// Version of the file's form.
const VERSION: u64 = 1;

/// The node's MPS servers as seen last, by UUIDs of their devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MpsServers {
    /// The servers, by mps-host's names for them.
    #[serde(default)]
    pub servers: BTreeMap<String, String>,
    /// Client faults that were already reported, by mps-host's names for them.
    #[serde(default)]
    pub faults: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    version: u64,
    boot_id: BootId,
    #[serde(flatten)]
    seen: MpsServers,
}

impl Journal {
    /// The MPS servers seen last in this boot; empty where the file is missing, or of another boot or version.
    ///
    /// # Errors
    /// [`JournalError::Io`] where it can't be read, [`JournalError::Corrupt`] where it can't be parsed.
    pub fn mps_servers(&self) -> Result<MpsServers, JournalError> {
        let path = self.directory().join(NAME);
        let bytes = match self.file_system().read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(MpsServers::default()),
            bytes => bytes.map_err(|error| JournalError::io("read", &path, error))?,
        };
        let content: Content = serde_json::from_slice(&bytes)
            .map_err(|error| JournalError::Corrupt { path, reason: error.to_string() })?;
        let is_known = content.version == VERSION && content.boot_id == *self.boot_id();
        Ok(if is_known { content.seen } else { MpsServers::default() })
    }

    /// Replaces what [`Journal::mps_servers`] returns. Two instances of the plugin may do this at the same time, since
    /// both see the same; a power failure may undo it.
    ///
    /// # Errors
    /// [`JournalError::Io`]; the file is then as it was before.
    pub fn put_mps_servers(&self, seen: &MpsServers) -> Result<(), JournalError> {
        let path = self.directory().join(NAME);
        let content = Content { version: VERSION, boot_id: self.boot_id().clone(), seen: seen.clone() };
        let text = serde_json::to_vec(&content).map_err(io::Error::from);
        let text = text.map_err(|error| JournalError::io("write", &path, error))?;
        self.sweep_mps_servers();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let new = self.directory().join(format!("{UNFINISHED}{now:x}.new"));
        replace_by(self.file_system(), &new, &path, &text)
            .map_err(|error| JournalError::io("write", &path, error))
    }

    /// Removes temporary files that a crash left. Another instance that is writing at the moment tries again.
    fn sweep_mps_servers(&self) {
        for file in self.file_system().list(self.directory()).unwrap_or_default() {
            if file.name.starts_with(UNFINISHED) {
                let _ = self.file_system().remove(&self.directory().join(&file.name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::LocalFileSystem;

    fn journal(directory: &std::path::Path, boot: &str) -> Journal {
        Journal::open(Arc::new(LocalFileSystem), directory.to_owned(), boot.into()).unwrap()
    }

    #[test]
    fn they_are_those_of_this_boot() {
        let directory = tempfile::tempdir().unwrap();
        let journal = |boot| self::journal(directory.path(), boot);
        assert_eq!(journal("a").mps_servers().unwrap(), MpsServers::default());
        let of = |value: &str| BTreeMap::from([("GPU-1".to_owned(), value.to_owned())]);
        let servers = MpsServers { servers: of("5-77"), faults: of("17") };
        fs::write(directory.path().join(".mps-servers.1.new"), "{").unwrap();
        journal("a").put_mps_servers(&servers).unwrap();
        assert_eq!(journal("a").mps_servers().unwrap(), servers);
        assert_eq!(journal("b").mps_servers().unwrap(), MpsServers::default(), "a reboot ends all of them");
        let names = || fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.file_name());
        assert!(!names().any(|name| name.to_string_lossy().ends_with(".new")));
        fs::write(directory.path().join(NAME), "{").unwrap();
        assert!(journal("a").mps_servers().unwrap_err().is_corrupt());
        journal("a").put_mps_servers(&servers).unwrap();
        assert_eq!(journal("a").mps_servers().unwrap(), servers);
        fs::remove_file(directory.path().join(NAME)).unwrap();
        fs::create_dir(directory.path().join(NAME)).unwrap();
        let error = journal("a").mps_servers().unwrap_err();
        assert!(matches!(error, JournalError::Io { .. }), "a file that can't be read is not none: {error}");
    }
}
