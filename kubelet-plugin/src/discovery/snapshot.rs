use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;

use tessera_api::PciBusId;
use tessera_inventory::Machine;
use tessera_inventory::machine::{Card, FabricState, Health, Pairs};
use tessera_nvml::{Nvml, NvmlError, PciAddress};

use super::facts::{self, Sources, pci_bus_id};
use super::health::HealthBook;
use super::own_partitions::OwnPartitions;
use super::problem::{Problem, Problems, Told};
use super::sysfs::Sysfs;
use super::undivided::Undivided;

/// What is known of this machine's cards, from all readings of this process's life.
#[derive(Debug)]
pub struct Discovery {
    sysfs: Sysfs,
    seen: bool,
    /// Whether it is known who made which GPU instances, or there are none.
    told_apart: bool,
    driver_version: Option<String>,
    cuda_driver_version: Option<u32>,
    cards: BTreeMap<PciBusId, Card>,
    pairs: Pairs,
    undivided: Undivided,
    returned: Vec<PciBusId>,
    problems: Vec<Problem>,
    told: Told,
}

/// What one card answered.
struct Answer {
    pci: PciBusId,
    gone: bool,
    card: Option<Card>,
    problems: Problems,
}

/// What all cards answered.
struct Reading {
    /// Those that answered, or of which something is known from before.
    cards: Vec<Card>,
    pairs: Pairs,
    gone: Vec<PciBusId>,
    problems: Problems,
}

impl Discovery {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(sysfs_root: PathBuf) -> Self {
        Discovery {
            sysfs: Sysfs::new(sysfs_root),
            seen: false,
            told_apart: true,
            driver_version: None,
            cuda_driver_version: None,
            cards: BTreeMap::new(),
            pairs: Pairs::default(),
            undivided: Undivided::default(),
            returned: Vec::new(),
            problems: Vec::new(),
            told: Told::default(),
        }
    }

    /// Keeps in `file`, for the next process, what cards say only outside MIG mode; begins with what is there.
    #[must_use]
    pub fn remembering_in(mut self, file: PathBuf) -> Self {
        self.undivided = Undivided::kept_in(file);
        self
    }

    /// Reads everything once, every card on a thread of its own; blocks as long as the slowest. For one look at a
    /// machine: [`run`](super::run) keeps looking. GPU instances are all taken to be others'.
    pub fn read_once(&mut self, nvml: &dyn Nvml) {
        self.read(nvml, &HealthBook::default(), None);
        self.told_apart = true;
    }

    /// As [`Discovery::read_once`], with what the driver's events said and with whom to ask for this driver's own
    /// partitions.
    pub(super) fn read(&mut self, nvml: &dyn Nvml, health: &HealthBook, own: Option<&dyn OwnPartitions>) {
        let mut problems = Problems::default();
        self.read_driver(nvml, &mut problems);
        match nvml.addresses() {
            Ok(addresses) => self.read_cards(nvml, addresses, health, own, &mut problems),
            Err(error) => problems.add(None, "cards", error),
        }
        self.told_apart = own.is_some()
            || self.cards.values().flat_map(|card| &card.mig).all(|mig| mig.instances.is_empty());
        self.finish(problems);
    }

    /// The driver went away: every card is lost until it is back.
    pub(super) fn driver_gone(&mut self) {
        for card in self.cards.values_mut() {
            card.health = Health::Lost;
        }
        self.returned.clear();
        self.finish(Problems::default());
    }

    /// The machine; `None` until cards were seen once, and while it isn't known who made the GPU instances that exist.
    #[must_use]
    pub fn machine(&self) -> Option<Machine> {
        (self.seen && self.told_apart).then(|| Machine {
            driver_version: self.driver_version.clone(),
            cuda_driver_version: self.cuda_driver_version,
            cards: self.cards.values().cloned().collect(),
            pairs: self.pairs.clone(),
        })
    }

    /// What the last reading missed.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Cards that were lost before the last reading and answered in it.
    pub(super) fn returned(&self) -> &[PciBusId] {
        &self.returned
    }

    /// Nothing is missing that may come by itself.
    pub(super) fn is_settled(&self) -> bool {
        let registering = |card: &Card| {
            card.fabric.as_ref().is_some_and(|fabric| {
                matches!(fabric.state, FabricState::NotStarted | FabricState::InProgress)
            })
        };
        self.seen && self.problems.is_empty() && !self.cards.values().any(registering)
    }

    fn finish(&mut self, problems: Problems) {
        self.problems = problems.into_vec();
        self.told.tell(&self.problems);
    }

    fn read_driver(&mut self, nvml: &dyn Nvml, problems: &mut Problems) {
        let version = nvml.driver_version().map(Some);
        self.driver_version = problems.take(None, "driverVersion", version, self.driver_version.take());
        let cuda = nvml.cuda_version().map(|version| Some(version.number()));
        self.cuda_driver_version = problems.take(None, "cudaDriverVersion", cuda, self.cuda_driver_version);
    }

    fn read_cards(
        &mut self,
        nvml: &dyn Nvml,
        addresses: Vec<Result<PciAddress, NvmlError>>,
        health: &HealthBook,
        own: Option<&dyn OwnPartitions>,
        problems: &mut Problems,
    ) {
        let mut present = Vec::new();
        for (index, address) in addresses.into_iter().enumerate() {
            match address.map(|address| (address, pci_bus_id(address))) {
                Ok((address, Some(pci))) => present.push((address, pci)),
                Ok((_, None)) => {}
                Err(error) => {
                    problems.add(None, "cards", format!("card with index {index} is left out: {error}"))
                }
            }
        }
        self.seen |= !present.is_empty();
        let sources = Sources { nvml, sysfs: &self.sysfs, own };
        let mut reading = self.reading(&sources, &present);
        if self.undivided.misses_something(&reading.cards, &reading.pairs) {
            reading = self.reading(&sources, &present);
        }
        let Reading { mut cards, mut pairs, gone, problems: found } = reading;
        problems.append(found);
        self.undivided.complete(&mut cards, &mut pairs);
        self.undivided.learn(&cards, &pairs);

        self.returned.clear();
        let mut live = Vec::new();
        for mut card in cards {
            let pci = card.pci;
            if self.cards.get(&pci).is_some_and(|known| known.health == Health::Lost) {
                self.returned.push(pci);
            }
            card.health = health.of(pci);
            self.cards.insert(pci, card);
            live.push(pci);
        }
        for (pci, card) in &mut self.cards {
            if !live.contains(pci) {
                card.health = Health::Lost;
            }
        }
        for pci in gone {
            problems.add(Some(pci), "card", "it fell off the bus or needs a reset");
        }
        self.pairs = pairs;
    }

    fn reading(&self, sources: &Sources<'_>, present: &[(PciAddress, PciBusId)]) -> Reading {
        let (mut cards, mut gone, mut problems) = (Vec::new(), Vec::new(), Problems::default());
        for answer in self.ask(sources, present) {
            problems.append(answer.problems);
            match answer.card {
                _ if answer.gone => gone.push(answer.pci),
                Some(card) => cards.push(card),
                None => {}
            }
        }
        let live: Vec<_> = present
            .iter()
            .copied()
            .filter(|(_, pci)| cards.iter().any(|card: &Card| card.pci == *pci))
            .collect();
        let pairs = self.read_pairs(sources.nvml, &live, &mut problems);
        Reading { cards, pairs, gone, problems }
    }

    fn ask(&self, sources: &Sources<'_>, present: &[(PciAddress, PciBusId)]) -> Vec<Answer> {
        side_by_side(present, |(address, pci)| {
            let known = self.cards.get(&pci);
            let mut problems = Problems::default();
            let (gone, card) = match sources.nvml.card(address) {
                Ok(read) if is_gone(&read) => (true, None),
                Ok(read) => (false, facts::card(pci, read, sources, known, &mut problems)),
                Err(error) if error.is_card_gone() => (true, None),
                Err(error) => {
                    problems.add(Some(pci), "card", error);
                    (false, known.cloned())
                }
            };
            Answer { pci, gone, card, problems }
        })
    }

    fn read_pairs(
        &self,
        nvml: &dyn Nvml,
        present: &[(PciAddress, PciBusId)],
        problems: &mut Problems,
    ) -> Pairs {
        let mut all = self.pairs.clone();
        let rows: Vec<usize> = (0..present.len()).collect();
        let answers = side_by_side(&rows, |row| {
            let (address, pci) = present[row];
            let mut own = Problems::default();
            let pairs: Vec<_> = present[row + 1..]
                .iter()
                .map(|&(other_address, other)| {
                    let known = self.pairs.get(pci, other);
                    (other, facts::pair(pci, other, nvml.pair(address, other_address), known, &mut own))
                })
                .collect();
            (pci, pairs, own)
        });
        for (pci, pairs, own) in answers {
            for (other, pair) in pairs {
                all.insert(pci, other, pair);
            }
            problems.append(own);
        }
        all
    }
}

/// A card that falls off while it is read gives an error for everything from there on.
fn is_gone(card: &tessera_nvml::Card) -> bool {
    let gone = |error: Option<&NvmlError>| error.is_some_and(NvmlError::is_card_gone);
    gone(card.uuid.as_ref().err()) || gone(card.memory.as_ref().err()) || gone(card.fabric.as_ref().err())
}

/// Does the work for each of `all` on a thread of its own; answers in their order.
fn side_by_side<T: Copy + Send + Sync, A: Send>(all: &[T], work: impl Fn(T) -> A + Sync) -> Vec<A> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = all.iter().map(|&one| scope.spawn(move || work(one))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests;
