//! XIDs of cards, kept on disk across restarts of the plugin.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tessera_api::PciBusId;

use super::health::{Remembered, XidError, Xids};
use super::resets::LastSeen;
use tessera_journal::{BootId, FileSystem, LocalFileSystem, replace_unsynced};

/// Version of the file's format. The first had one number for each card.
const VERSION: u32 = 2;

/// Keeps the cards with an XID in this boot of the machine on disk, so a restarted plugin gives them no new
/// work either. After a boot every card has been reset.
#[derive(Clone)]
pub struct XidMemory {
    path: PathBuf,
    proc_root: PathBuf,
    file_system: Arc<dyn FileSystem>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    version: u32,
    boot_id: BootId,
    xids: Xids,
    /// Last seen state of the cards. Older plugins of the same version neither write nor read this field.
    #[serde(default)]
    cards: BTreeMap<PciBusId, LastSeen>,
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

    /// The XIDs of this boot. Empty, with a log message, if the file can't be used; also empty if there is no file. Blocks.
    pub(super) fn read(&self) -> Remembered {
        match self.try_read() {
            Ok(remembered) => remembered,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Remembered::default(),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error,
                    "which cards had an XID before this start can't be read: they may get new work");
                Remembered::default()
            }
        }
    }

    fn try_read(&self) -> io::Result<Remembered> {
        let content = self.file_system.read(&self.path)?;
        let (boot_id, remembered) = match serde_json::from_slice::<Versioned>(&content)?.version {
            1 => {
                let RememberedFirst { boot_id, xids } = serde_json::from_slice(&content)?;
                let xids = xids.into_iter().map(|(card, xid)| (card, vec![XidError::of_card(xid)])).collect();
                (boot_id, Remembered { xids, ..Remembered::default() })
            }
            VERSION => {
                let Content { boot_id, xids, cards, .. } = serde_json::from_slice(&content)?;
                (boot_id, Remembered { xids, cards })
            }
            version => return Err(io::Error::other(format!("it has version {version}"))),
        };
        let is_of_this_boot = boot_id == self.boot_id()?;
        Ok(if is_of_this_boot { remembered } else { Remembered::default() })
    }

    /// Replaces the file's content. Blocks.
    ///
    /// # Errors
    /// The operating system's error: the directory does not exist yet, the disk is full or read-only.
    pub(super) fn write(&self, remembered: Remembered) -> io::Result<()> {
        let Remembered { xids, cards } = remembered;
        let content =
            serde_json::to_vec(&Content { version: VERSION, boot_id: self.boot_id()?, xids, cards })?;
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

    use tessera_api::health::Recovery;

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
        assert_eq!(memory.read(), Remembered::default());
        let card = "0000:3b:00.0".parse().unwrap();
        let seen = LastSeen { recovery: Some(Recovery::Unknown(23)), ..LastSeen::default() };
        let remembered =
            Remembered { xids: [(card, vec![XidError::of_card(79)])].into(), cards: [(card, seen)].into() };
        memory.write(remembered.clone()).unwrap();
        assert_eq!(boot(directory.path(), "boot-1\n").read(), remembered);
        assert_eq!(boot(directory.path(), "boot-2\n").read(), Remembered::default());
        memory.write(Remembered::default()).unwrap();
        assert_eq!(memory.read(), Remembered::default());
        let names: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "nothing else is left: {names:?}");
    }

    #[test]
    fn a_file_without_how_the_cards_were_seen_is_understood() {
        let directory = tempfile::tempdir().unwrap();
        let memory = boot(directory.path(), "boot-1\n");
        let content = r#"{"version":2,"bootId":"boot-1","xids":{"0000:3b:00.0":[{"xid":48}]}}"#;
        fs::write(&memory.path, content).unwrap();
        assert_eq!((memory.read().xids.len(), memory.read().cards.len()), (1, 0));
    }

    #[test]
    fn a_file_of_the_first_version_is_understood() {
        let directory = tempfile::tempdir().unwrap();
        let memory = boot(directory.path(), "boot-1\n");
        fs::write(&memory.path, r#"{"version":1,"bootId":"boot-1","xids":{"0000:3b:00.0":79}}"#).unwrap();
        assert_eq!(memory.read().xids[&"0000:3b:00.0".parse().unwrap()], [XidError::of_card(79)]);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let memory = boot(directory.path(), "boot-1\n");
        let newer = r#"{"version":3,"bootId":"boot-1","xids":{}}"#;
        for content in ["", "{", "[]", "null", newer, r#"{"version":1,"bootId":"boot-1","xids":{"x":1}}"#] {
            fs::write(&memory.path, content).unwrap();
            assert_eq!(memory.read(), Remembered::default(), "{content}");
        }
        fs::remove_dir_all(directory.path().join("proc")).unwrap();
        assert!(memory.write(Remembered::default()).is_err());
    }
}
