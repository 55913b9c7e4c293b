//! The driver's version and cards as listed by its kernel module in `/proc/driver/nvidia`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The driver's version and its cards, as the kernel has them now. The library lists only cards that were there when it was
/// opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelList {
    version: String,
    /// UUIDs by address; `None` while nobody has used the card since its arrival (the driver writes `GPU-????????-…` then).
    cards: BTreeMap<String, Option<String>>,
}

impl KernelList {
    /// Reads the list on a thread that may block; `None` if the driver has no such list.
    pub(super) async fn read_in_background(proc_root: &Path) -> Option<Self> {
        let proc_root = proc_root.to_owned();
        tokio::task::spawn_blocking(move || Self::read(&proc_root)).await.ok()?
    }

    fn read(proc_root: &Path) -> Option<Self> {
        let directory = proc_root.join("driver/nvidia");
        let version = fs::read_to_string(directory.join("version")).ok()?;
        let version = version.lines().next().unwrap_or_default().to_owned();
        let mut cards = BTreeMap::new();
        for entry in fs::read_dir(directory.join("gpus")).ok()?.flatten() {
            // A card may go at this moment.
            let Ok(information) = fs::read_to_string(entry.path().join("information")) else { continue };
            let uuid = information.lines().find_map(|line| line.strip_prefix("GPU UUID:"));
            let uuid = uuid.map(str::trim).filter(|uuid| !uuid.contains('?')).map(str::to_owned);
            cards.insert(entry.file_name().to_string_lossy().into_owned(), uuid);
        }
        Some(Self { version, cards })
    }

    /// News in `now`, if any: another version, an added card, or another card at an address. A removed card is no news: the
    /// library itself reports the card as lost.
    pub(super) fn news(&self, now: &Self) -> Option<String> {
        if self.version != now.version {
            return Some(format!("another driver was loaded ({})", now.version));
        }
        now.cards.iter().find_map(|(address, uuid)| match (self.cards.get(address), uuid) {
            (None, _) => Some(format!("a card came at {address}")),
            (Some(Some(before)), uuid) if Some(before) != uuid.as_ref() => {
                Some(format!("another card is at {address}, where {before} was"))
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(version: &str, cards: &[(&str, Option<&str>)]) -> KernelList {
        let cards = cards.iter().map(|(address, uuid)| ((*address).to_owned(), uuid.map(str::to_owned)));
        KernelList { version: version.to_owned(), cards: cards.collect() }
    }

    #[test]
    fn what_a_library_that_is_open_cannot_know_is_news() {
        let before = list("580", &[("a", Some("GPU-1")), ("b", None)]);
        let said = |version: &str, cards: &[(&str, Option<&str>)]| before.news(&list(version, cards));
        assert_eq!(said("580", &[("a", Some("GPU-1")), ("b", None)]), None);
        assert_eq!(said("580", &[("a", Some("GPU-1")), ("b", Some("GPU-2"))]), None, "somebody used it");
        assert_eq!(said("580", &[("a", Some("GPU-1"))]), None, "that it is gone the library knows");
        assert_eq!(said("581", &[]).unwrap(), "another driver was loaded (581)");
        let (one, other) = (("a", Some("GPU-1")), ("b", None));
        assert_eq!(said("580", &[one, other, ("c", None)]).unwrap(), "a card came at c");
        for uuid in [Some("GPU-3"), None] {
            let said = said("580", &[("a", uuid), other]).unwrap();
            assert_eq!(said, "another card is at a, where GPU-1 was");
        }
    }

    #[test]
    fn the_files_of_the_driver_are_read() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("driver/nvidia");
        assert_eq!(KernelList::read(root.path()), None);
        for (address, uuid) in
            [("0000:3b:00.0", "GPU-1"), ("0000:5e:00.0", "GPU-????????-????-????-????-????????????")]
        {
            let card = directory.join("gpus").join(address);
            fs::create_dir_all(&card).unwrap();
            fs::write(card.join("information"), format!("Model: \t\t NVIDIA A30\nGPU UUID: \t {uuid}\n"))
                .unwrap();
        }
        fs::write(directory.join("version"), "NVRM version: 580\nGCC version: 12\n").unwrap();
        let expected = list("NVRM version: 580", &[("0000:3b:00.0", Some("GPU-1")), ("0000:5e:00.0", None)]);
        assert_eq!(KernelList::read(root.path()), Some(expected));
    }
}
