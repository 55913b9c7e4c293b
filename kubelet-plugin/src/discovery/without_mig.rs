//! Keeps facts reported by cards only outside MIG mode.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tessera_api::PciBusId;
use tessera_inventory::machine::{Card, NvLink, NvLinkRemote, Pairs};

use tessera_journal::{FileSystem as _, LocalFileSystem, replace_unsynced};

/// Facts reported by cards only outside MIG mode. In MIG mode a card's NVLinks are down, at both ends, and the card
/// reserves a different amount of memory.
///
/// Partitions for claims come and go, and the machine's publication (groups, order, capacities) must not
/// change with them: a partitioned card is whole again before a claim gets the whole card. So a card in MIG mode for claims
/// is published in its state outside MIG mode. A file keeps these facts for the plugin's next start, when the
/// card may be partitioned.
///
/// A card with GPU instances of others (an administrator's, a layout's), or whose mode switches only with a
/// reset, stays partitioned and is published as such.
#[derive(Debug, Default)]
pub(super) struct Undivided {
    known: Known,
    file: Option<PathBuf>,
}

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Known {
    cards: BTreeMap<PciBusId, KnownCard>,
    /// Whether two cards are connected by NVLink; the lower address comes first.
    peers: BTreeMap<PciBusId, BTreeMap<PciBusId, bool>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KnownCard {
    /// If another card is in this place, the facts don't apply.
    uuid: Option<String>,
    nvlinks: Vec<NvLink>,
    reserved_memory_bytes: u64,
}

impl Undivided {
    /// Loads `file`, and keeps the file up to date. An unreadable file counts as empty.
    pub(super) fn kept_in(file: PathBuf) -> Self {
        let known = read(&file).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                let file = file.display();
                tracing::warn!(%file, %error, "what cards say outside MIG mode is not known from before");
            }
            Known::default()
        });
        Self { known, file: Some(file) }
    }

    /// Whether an earlier link or peer access is missing although none of its cards is in MIG mode. The mode may have
    /// been switched between two queries; another look will tell.
    pub(super) fn misses_something(&self, cards: &[Card], pairs: &Pairs) -> bool {
        let divided: Vec<PciBusId> =
            cards.iter().filter(|card| in_mig_mode(card)).map(|card| card.pci).collect();
        let counts = |link: &&NvLink| match link.remote {
            NvLinkRemote::Gpu(other) => !divided.contains(&other),
            NvLinkRemote::Switch | NvLinkRemote::Other => true,
        };
        let mut whole = cards.iter().filter(|card| !in_mig_mode(card));
        let link_missing = whole.any(|card| {
            let before = self.of(card).map_or(0, |known| known.nvlinks.iter().filter(counts).count());
            card.nvlinks.as_ref().is_some_and(|links| links.iter().filter(counts).count() < before)
        });
        link_missing
            || self.accessible().any(|(one, other)| {
                !divided.contains(&one)
                    && !divided.contains(&other)
                    && pairs.get(one, other).nvlink_peer_access == Some(false)
            })
    }

    /// Adds facts from outside MIG mode, where known, to cards in MIG mode for claims and to cards at the
    /// other end of their links.
    pub(super) fn complete(&self, cards: &mut [Card], pairs: &mut Pairs) {
        let divided: Vec<PciBusId> =
            cards.iter().filter(|card| is_divided_for_claims(card)).map(|card| card.pci).collect();
        if divided.is_empty() {
            return;
        }
        let same: Vec<PciBusId> =
            cards.iter().filter(|card| self.of(card).is_some()).map(|card| card.pci).collect();
        for card in cards.iter_mut() {
            let Some(known) = self.of(card) else { continue };
            if divided.contains(&card.pci) {
                card.nvlinks = Some(known.nvlinks.clone());
                card.reserved_memory_bytes = known.reserved_memory_bytes;
                continue;
            }
            let Some(links) = card.nvlinks.as_mut() else { continue };
            for other in divided.iter().filter(|other| same.contains(other)) {
                let leads_there = |link: &&NvLink| link.remote == NvLinkRemote::Gpu(*other);
                let up = links.iter().filter(leads_there).count();
                let down: Vec<NvLink> = known.nvlinks.iter().filter(leads_there).skip(up).copied().collect();
                links.extend(down);
            }
            // Keep the known order: the same links in another order would look like a change.
            if sorted(links) == sorted(&known.nvlinks) {
                links.clone_from(&known.nvlinks);
            }
        }
        for (position, &one) in same.iter().enumerate() {
            for &other in &same[position + 1..] {
                if !divided.contains(&one) && !divided.contains(&other) {
                    continue;
                }
                if let Some(access) = self.access(one, other) {
                    let mut pair = pairs.get(one, other);
                    pair.nvlink_peer_access = Some(access);
                    pairs.insert(one, other, pair);
                }
            }
        }
    }

    /// Learns from cards outside MIG mode, and writes the file if anything is new.
    pub(super) fn learn(&mut self, cards: &[Card], pairs: &Pairs) {
        let mut next = self.known.clone();
        let whole: Vec<&Card> = cards.iter().filter(|card| !in_mig_mode(card)).collect();
        for card in &whole {
            let Some(nvlinks) = card.nvlinks.clone() else { continue };
            let known = KnownCard {
                uuid: card.uuid.clone(),
                nvlinks,
                reserved_memory_bytes: card.reserved_memory_bytes,
            };
            next.cards.insert(card.pci, known);
        }
        for one in &whole {
            for other in whole.iter().filter(|other| one.pci < other.pci) {
                let access = pairs.get(one.pci, other.pci).nvlink_peer_access;
                if let Some(access) = access {
                    next.peers.entry(one.pci).or_default().insert(other.pci, access);
                }
            }
        }
        if next == self.known {
            return;
        }
        self.known = next;
        if let Some(file) = &self.file
            && let Err(error) = write(file, &self.known)
        {
            let file = file.display();
            tracing::warn!(%file, %error, "what cards say outside MIG mode is not kept for the next start");
        }
    }

    fn of(&self, card: &Card) -> Option<&KnownCard> {
        self.known.cards.get(&card.pci).filter(|known| known.uuid == card.uuid)
    }

    fn access(&self, one: PciBusId, other: PciBusId) -> Option<bool> {
        self.known.peers.get(&one.min(other))?.get(&one.max(other)).copied()
    }

    fn accessible(&self) -> impl Iterator<Item = (PciBusId, PciBusId)> {
        let pairs =
            self.known.peers.iter().flat_map(|(one, others)| others.iter().map(|other| (*one, other)));
        pairs.filter(|(_, (_, access))| **access).map(|(one, (other, _))| (one, *other))
    }
}

fn sorted(links: &[NvLink]) -> Vec<NvLink> {
    let mut sorted = links.to_vec();
    sorted.sort_unstable();
    sorted
}

fn in_mig_mode(card: &Card) -> bool {
    card.mig.as_ref().is_some_and(|mig| mig.mode)
}

fn is_divided_for_claims(card: &Card) -> bool {
    let Some(mig) = &card.mig else { return false };
    mig.mode && !mig.mode_switch_needs_reset && mig.instances.is_empty()
}

fn read(file: &Path) -> io::Result<Known> {
    Ok(serde_json::from_slice(&LocalFileSystem.read(file)?)?)
}

fn write(file: &Path, known: &Known) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        LocalFileSystem.create_directory(directory)?;
    }
    replace_unsynced(&LocalFileSystem, file, &serde_json::to_vec(known)?)
}
