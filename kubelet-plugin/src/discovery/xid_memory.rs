//! XIDs of cards, kept on disk across restarts of the plugin.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tessera_api::PciBusId;

use super::health::{XidError, Xids};
use tessera_journal::{BootId, FileSystem, LocalFileSystem, replace_unsynced};

/// Version of the file's format. The first had one number for each card.
const VERSION: u32 = 2;

/// Remembers on disk which cards had an XID in this boot of the machine, so that a restarted plugin gives them no new
/// work either. After a boot every card has been reset.
#[derive(Clone)]
pub struct XidMemory {
    path: PathBuf,
    proc_root: PathBuf,
    file_system: Arc<dyn FileSystem>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Remembered {
    version: u32,
    boot_id: BootId,
    xids: Xids,
}

/// The file of version 1.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RememberedFirst {
    boot_id: BootId,
    /// The latest XID of each card.
    xids: BTreeMap<PciBusId, u64>,
}

/// The version of any file.
#[derive(Debug, Deserialize)]
struct Versioned {
    version: u32,
}

impl XidMemory {
    /// Uses `xids.json` in the plugin's own directory. Takes the boot id from `proc_root`.
    #[must_use]
    pub fn new(state_directory: &Path, proc_root: PathBuf) -> Self {
        Self { path: state_directory.join("xids.json"), proc_root, file_system: Arc::new(LocalFileSystem) }
    }

    /// The XIDs of this boot. Empty if there is no file, or if it can't be used, which is logged. Blocks.
    pub(super) fn read(&self) -> Xids {
        match self.try_read() {
            Ok(remembered) => remembered,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Xids::new(),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error,
                    "which cards had an XID before this start can't be read: they may get new work");
                Xids::new()
            }
        }
    }

    fn try_read(&self) -> io::Result<Xids> {
        let content = self.file_system.read(&self.path)?;
        let (boot_id, xids) = match serde_json::from_slice::<Versioned>(&content)?.version {
            1 => {
                let RememberedFirst { boot_id, xids } = serde_json::from_slice(&content)?;
                (boot_id, xids.into_iter().map(|(card, xid)| (card, vec![XidError::of_card(xid)])).collect())
            }
            VERSION => {
                let Remembered { boot_id, xids, .. } = serde_json::from_slice(&content)?;
                (boot_id, xids)
            }
            version => return Err(io::Error::other(format!("it has version {version}"))),
        };
        let is_of_this_boot = boot_id == self.boot_id()?;
        Ok(if is_of_this_boot { xids } else { Xids::new() })
    }

    /// Replaces what is remembered. Blocks.
    ///
    /// # Errors
    /// The operating system's error: the directory does not exist yet, the disk is full or read-only.
    pub(super) fn write(&self, xids: Xids) -> io::Result<()> {
        let content = serde_json::to_vec(&Remembered { version: VERSION, boot_id: self.boot_id()?, xids })?;
        // No sync: after a power loss the machine boots, and then all cards have been reset.
        replace_unsynced(&*self.file_system, &self.path, &content)
    }

    fn boot_id(&self) -> io::Result<BootId> {
        BootId::read(&*self.file_system, &self.proc_root).map_err(io::Error::other)
    }
}

impl std::fmt::Debug for XidMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("XidMemory").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn boot(directory: &Path, id: &str) -> XidMemory {
        let random = directory.join("proc/sys/kernel/random");
        fs::create_dir_all(&random).unwrap();
        fs::write(random.join("boot_id"), id).unwrap();
        XidMemory::new(directory, directory.join("proc"))
    }

    #[test]
    fn xids_last_until_the_next_boot() {
        let directory = tempfile::tempdir().unwrap();
        let memory = boot(directory.path(), "boot-1\n");
        assert!(memory.read().is_empty());
        let xids = Xids::from([("0000:3b:00.0".parse().unwrap(), vec![XidError::of_card(79)])]);
        memory.write(xids.clone()).unwrap();
        assert_eq!(boot(directory.path(), "boot-1\n").read(), xids);
        assert!(boot(directory.path(), "boot-2\n").read().is_empty());
        memory.write(Xids::new()).unwrap();
        assert!(memory.read().is_empty());
        let names: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "nothing else is left: {names:?}");
    }

    #[test]
    fn a_file_of_the_first_version_is_understood() {
        let directory = tempfile::tempdir().unwrap();
        let memory = boot(directory.path(), "boot-1\n");
        fs::write(&memory.path, r#"{"version":1,"bootId":"boot-1","xids":{"0000:3b:00.0":79}}"#).unwrap();
        assert_eq!(memory.read()[&"0000:3b:00.0".parse().unwrap()], [XidError::of_card(79)]);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let memory = boot(directory.path(), "boot-1\n");
        let newer = r#"{"version":3,"bootId":"boot-1","xids":{}}"#;
        for content in ["", "{", "[]", "null", newer, r#"{"version":1,"bootId":"boot-1","xids":{"x":1}}"#] {
            fs::write(&memory.path, content).unwrap();
            assert!(memory.read().is_empty(), "{content}");
        }
        fs::remove_dir_all(directory.path().join("proc")).unwrap();
        assert!(memory.write(Xids::new()).is_err());
    }
}
