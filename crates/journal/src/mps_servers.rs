//! Which MPS servers were seen last, for the next instance of the plugin.

use std::collections::BTreeMap;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::boot_id::BootId;
use crate::error::JournalError;
use crate::file_system::replace_by;
use crate::store::Journal;

const NAME: &str = "mps-servers.json";

/// Beginning of the names of files that are not whole yet.
const UNFINISHED: &str = ".mps-servers.";

/// Form of the file.
const VERSION: u64 = 1;

/// What was seen of the node's MPS servers, by UUIDs of their devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MpsServers {
    /// The servers, as mps-host names them.
    #[serde(default)]
    pub servers: BTreeMap<String, String>,
    /// The faults of their clients that were told, as mps-host names them.
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
    /// What was seen last of MPS servers in this boot; nothing where the file is missing, or of another boot or version.
    ///
    /// # Errors
    /// [`JournalError::Io`] where it can't be read, [`JournalError::Corrupt`] where it makes no sense.
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

    /// Replaces what [`Journal::mps_servers`] gives. Two instances of the plugin may do it at the same time, since what they
    /// see is the same; a power failure may undo it.
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

    /// Removes what a crash left half written. Another instance that is just writing tries again.
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
