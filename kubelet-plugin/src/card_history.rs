//! History of the cards at each PCI address. An allocation names a device by its PCI address. An allocation older than the card at
//! the address was made for another card.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tessera_api::PciBusId;
use tessera_inventory::Machine;
use tessera_journal::{FileSystem, LocalFileSystem, replace_synced};

/// Version of the file's format. Fields may be added without a new one.
const VERSION: u32 = 1;

/// The last card seen at each address, kept in a file across restarts and reboots.
pub struct CardHistory {
    path: PathBuf,
    file_system: Arc<dyn FileSystem>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    cards: BTreeMap<PciBusId, Seen>,
    /// Content of the file; `None` if unknown.
    written: Option<BTreeMap<PciBusId, Seen>>,
}

/// A card at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Seen {
    uuid: String,
    /// When the card was first seen at this address, after another card. Absent for the first card ever seen there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    version: u32,
    cards: BTreeMap<PciBusId, Seen>,
}

/// The card at an address is not the one of the allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// When the present card was first seen; `None` if discovery has not seen the card yet.
    pub since: Option<Timestamp>,
}

impl CardHistory {
    /// Uses `cards.json` in the plugin's own directory. An unreadable file counts as empty, and a warning is logged.
    #[must_use]
    pub fn open(state_directory: &Path) -> Self {
        Self::open_with(state_directory, Arc::new(LocalFileSystem))
    }

    fn open_with(state_directory: &Path, file_system: Arc<dyn FileSystem>) -> Self {
        let path = state_directory.join("cards.json");
        let cards = match read(&*file_system, &path) {
            Ok(cards) => cards,
            Err(error) => {
                if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                    tracing::warn!(path = %path.display(), %error,
                        "which cards were here before this start can't be read: one that was replaced meanwhile is not noticed");
                }
                BTreeMap::new()
            }
        };
        let known = Known { cards, written: None };
        Self { path, file_system, known: Mutex::new(known) }
    }

    /// Records the machine's present cards. Blocks until new entries are on the disk. A failed write is retried with the next look;
    /// until then the entries hold for this process only.
    pub fn learn(&self, machine: &Machine) {
        let mut known = self.known();
        for card in &machine.cards {
            let Some(uuid) = &card.uuid else { continue };
            let since = match known.cards.get(&card.pci) {
                Some(seen) if seen.uuid == *uuid => continue,
                Some(seen) => {
                    tracing::warn!(card = %card.pci, before = seen.uuid, now = uuid,
                        "another card is in this place: claims that were allocated before are not prepared on it");
                    Some(Timestamp::now())
                }
                None => None,
            };
            known.cards.insert(card.pci, Seen { uuid: uuid.clone(), since });
        }
        if known.written.as_ref() == Some(&known.cards) {
            return;
        }
        match self.write(&known.cards) {
            Ok(()) => known.written = Some(known.cards.clone()),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "which cards are here can't be written down; trying again");
            }
        }
    }

    /// Checks that the card with this UUID was at the address when the address's devices were allocated.
    ///
    /// # Errors
    /// [`Replaced`] if the card came later.
    pub fn check(&self, card: PciBusId, uuid: &str, allocated: Timestamp) -> Result<(), Replaced> {
        match self.known().cards.get(&card) {
            Some(seen) if seen.uuid != uuid => Err(Replaced { since: None }),
            // API objects have whole seconds. Nobody changes a card within one, so an allocation of the same second is for this card.
            Some(Seen { since: Some(since), .. }) if allocated.as_second() < since.as_second() => {
                Err(Replaced { since: Some(*since) })
            }
            _ => Ok(()),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, cards: &BTreeMap<PciBusId, Seen>) -> io::Result<()> {
        let text = serde_json::to_vec(&Stored { version: VERSION, cards: cards.clone() })?;
        if let Some(directory) = self.path.parent() {
            self.file_system.create_directory(directory)?;
        }
        replace_synced(&*self.file_system, &self.path, &text)
    }
}

impl std::fmt::Debug for CardHistory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CardHistory").field("path", &self.path).finish_non_exhaustive()
    }
}

fn read(file_system: &dyn FileSystem, path: &Path) -> io::Result<BTreeMap<PciBusId, Seen>> {
    let Stored { version, cards } = serde_json::from_slice(&file_system.read(path)?)?;
    if version > VERSION {
        return Err(io::Error::other(format!("it has version {version}")));
    }
    Ok(cards)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tessera_inventory::machine::Card;

    use super::*;

    fn address() -> PciBusId {
        PciBusId::new(0, 0x3b, 0, 0).unwrap()
    }

    fn with(uuid: &str) -> Machine {
        let mut card = Card::new(address());
        card.uuid = Some(uuid.to_owned());
        Machine { cards: vec![card], ..Machine::default() }
    }

    fn seconds(from_now: i64) -> Timestamp {
        Timestamp::from_second(Timestamp::now().as_second() + from_now).unwrap()
    }

    #[test]
    fn an_allocation_is_not_good_for_a_card_that_came_later() {
        let directory = tempfile::tempdir().unwrap();
        let history = CardHistory::open(directory.path());
        history.learn(&with("GPU-1"));
        let is_good =
            |history: &CardHistory, uuid: &str, at: i64| history.check(address(), uuid, seconds(at)).is_ok();
        assert!(is_good(&history, "GPU-1", -1000), "nothing is known of a card before it");
        assert_eq!(
            history.check(address(), "GPU-2", seconds(0)),
            Err(Replaced { since: None }),
            "not looked at yet"
        );
        history.learn(&with("GPU-2"));
        assert!(!is_good(&history, "GPU-2", -1) && is_good(&history, "GPU-2", 2));
        // Also for the next process, whether the address has the same card or a third.
        let next = CardHistory::open(directory.path());
        next.learn(&with("GPU-2"));
        assert!(!is_good(&next, "GPU-2", -1) && is_good(&next, "GPU-2", 2));
        let after = CardHistory::open(directory.path());
        after.learn(&with("GPU-3"));
        assert!(!is_good(&after, "GPU-3", -1) && is_good(&after, "GPU-3", 2));
    }

    #[test]
    fn a_file_that_makes_no_sense_is_none() {
        let directory = tempfile::tempdir().unwrap();
        for content in ["", "{", r#"{"version":2,"cards":{}}"#, r#"{"version":1,"cards":{"x":{}}}"#] {
            fs::write(directory.path().join("cards.json"), content).unwrap();
            let history = CardHistory::open(directory.path());
            assert!(history.check(address(), "GPU-1", seconds(-5)).is_ok(), "{content}");
            history.learn(&with("GPU-1"));
            let text = fs::read_to_string(directory.path().join("cards.json")).unwrap();
            assert_eq!(text, r#"{"version":1,"cards":{"0000:3b:00.0":{"uuid":"GPU-1"}}}"#);
        }
    }
}
