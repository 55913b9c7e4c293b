//! The known state of all cards, built up over all looks of this process.

mod answer;
mod reading;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tessera_api::PciBusId;
use tessera_api::facts::GpuInstance;
use tessera_api::health::{HealthClass, Recovery};
use tessera_inventory::Machine;
use tessera_inventory::machine::{Card, FabricState, Health, Pairs};
use tessera_nvml::{Event, EventWatch, Nvml};
use tokio::sync::Notify;

use super::facts::Sources;
use super::faults;
use super::health::HealthBook;
use super::links_up::LinksUp;
use super::looks::Looks;
use super::own_partitions::OwnPartitions;
use super::problem::{self, Problem, Problems, Told};
use super::readers::{Readers, Subject};
use super::resets::{LastSeen, Resets};
use super::sysfs::Sysfs;
use super::without_mig::Undivided;
use reading::Reading;

/// Default time limit of driver calls for one card. Waking up an idle card takes seconds.
const DEADLINE: Duration = Duration::from_secs(10);

/// State of this machine's cards, from all looks of this process.
#[derive(Debug)]
pub struct Discovery {
    sysfs: Arc<Sysfs>,
    readers: Readers,
    /// The cards listed by the driver, including cards without an answer so far.
    addresses: BTreeSet<PciBusId>,
    /// Whether all GPU instances are known to be ours or others', or there are none.
    told_apart: bool,
    driver_version: Option<String>,
    cuda_driver_version: Option<u32>,
    /// See [`Nvml::accepts_confidential_work`].
    accepts_confidential_work: Option<bool>,
    cards: BTreeMap<PciBusId, Card>,
    pairs: Pairs,
    undivided: Undivided,
    links_up: LinksUp,
    /// Cards with an XID in a GPU instance, with their instances, in the last look.
    instances_of_xids: Vec<(PciBusId, Vec<GpuInstance>)>,
    resets: Resets,
    /// The library of the last look.
    library: Option<Weak<dyn Nvml>>,
    returned: Vec<PciBusId>,
    looks: Looks,
    problems: Vec<Problem>,
    told: Told,
}

impl Discovery {
    /// A state without cards.
    #[must_use]
    pub fn new(sysfs_root: PathBuf) -> Self {
        Discovery {
            sysfs: Arc::new(Sysfs::new(sysfs_root)),
            readers: Readers::new(DEADLINE),
            addresses: BTreeSet::new(),
            told_apart: true,
            driver_version: None,
            cuda_driver_version: None,
            accepts_confidential_work: None,
            cards: BTreeMap::new(),
            pairs: Pairs::default(),
            undivided: Undivided::default(),
            links_up: LinksUp::default(),
            instances_of_xids: Vec::new(),
            resets: Resets::default(),
            library: None,
            returned: Vec::new(),
            looks: Looks::default(),
            problems: Vec::new(),
            told: Told::default(),
        }
    }

    /// Keeps facts reported only outside MIG mode in `file`, for the next process; loads the file's content.
    #[must_use]
    pub fn remembering_in(mut self, file: PathBuf) -> Self {
        self.undivided = Undivided::kept_in(file);
        self
    }

    /// Takes how an earlier process saw the cards last.
    pub(super) fn seen_earlier(&mut self, cards: BTreeMap<PciBusId, LastSeen>) {
        self.resets = Resets::of_earlier(cards);
    }

    /// Takes the cards reset by this process since the last look: the driver need not show a reset.
    pub(super) fn were_reset(&mut self, cards: BTreeSet<PciBusId>) {
        for card in cards {
            self.resets.note(card);
        }
    }

    /// Last seen state of a card.
    pub(super) fn last_seen(&self, card: PciBusId) -> Option<&LastSeen> {
        self.resets.last_seen(card)
    }

    /// Sets the time limit of driver calls for each card (10 s by default). `returned` is notified when a call
    /// beyond the limit returns.
    #[must_use]
    pub(super) fn answered_within(mut self, deadline: Duration, returned: Arc<Notify>) -> Self {
        self.readers = Readers::new(deadline).telling(returned);
        self
    }

    /// Reads everything once, each card on a thread of its own. Blocks as long as the slowest takes, but at most a
    /// minute. For a single look at a machine; [`run`](super::run) keeps looking. All GPU instances count as others'.
    pub fn read_once(&mut self, nvml: &(impl Nvml + Clone)) {
        let nvml: Arc<dyn Nvml> = Arc::new(nvml.clone());
        self.read(&nvml, &HealthBook::default(), None);
        self.told_apart = true;
    }

    /// Like [`Discovery::read_once`], with the health from the driver's events and with a source for this driver's
    /// own partitions.
    pub(super) fn read(
        &mut self,
        nvml: &Arc<dyn Nvml>,
        health: &HealthBook,
        own: Option<&Arc<dyn OwnPartitions>>,
    ) {
        let began = Instant::now();
        let mut problems = Problems::default();
        self.read_driver(nvml, &mut problems);
        let present = self.read_addresses(nvml, &mut problems);
        let sources = Sources { nvml: nvml.clone(), sysfs: self.sysfs.clone(), own: own.cloned() };
        let hanging = self.read_cards(&sources, &present, health, &mut problems);
        self.library = Some(Arc::downgrade(nvml));
        self.told_apart = own.is_some()
            || self.cards.values().flat_map(|card| &card.mig).all(|mig| mig.instances.is_empty());
        for subject in self.readers.hanging() {
            let (card, fact, note) = match subject {
                Subject::Events => (None, "events", "XIDs are not heard of"),
                Subject::Driver => (None, "driverVersion", "the last answer counts"),
                Subject::Cards => (None, "cards", "cards that it has not named are left out"),
                Subject::Card(card) => (Some(card), "card", "the card gets no new work; it may need a reset"),
                Subject::Pairs(card) => (Some(card), "pairs", "the last answer counts"),
            };
            let deadline = self.readers.deadline;
            let message = format!(
                "a call of the driver has not returned within {deadline:?}; until it does, {note}. See the node's kernel \
                 log for NVRM messages"
            );
            problems.add(card, fact, message);
        }
        if self.readers.hanging().next().is_none() {
            self.looks.complete = Some(began);
        }
        self.looks.cards.retain(|card, _| self.cards.contains_key(card));
        self.looks
            .cards
            .extend(self.cards.keys().filter(|card| !hanging.contains(card)).map(|card| (*card, began)));
        self.looks.hanging = hanging;
        let unknown = |card: &Card| match card.recovery {
            Some(Recovery::Unknown(number)) => Some((card.pci, number)),
            _ => None,
        };
        self.looks.unknown_recoveries = self.cards.values().filter_map(unknown).collect();
        self.finish(problems);
    }

    /// Records the driver's absence: every card is lost until its return. The absence is no reset: only the library may be opened
    /// anew.
    pub(super) fn driver_gone(&mut self) {
        for card in self.cards.values_mut() {
            card.health = Health::Lost;
        }
        self.returned.clear();
        let now = Instant::now();
        self.looks.cards = self.cards.keys().map(|card| (*card, now)).collect();
        self.looks.hanging.clear();
        self.finish(Problems::default());
    }

    /// Starts to listen to the driver's events; `None` if listening fails or takes too long.
    pub(super) fn listen(
        &mut self,
        nvml: &Arc<dyn Nvml>,
        sink: Box<dyn FnMut(Event) + Send>,
    ) -> Option<EventWatch> {
        let nvml = nvml.clone();
        let watch = self.readers.ask_one(Subject::Events, move || nvml.watch(sink))?;
        watch.inspect_err(|error| tracing::debug!(%error, "the driver reports no events")).ok()
    }

    /// The machine; `None` until cards have been seen, and while the owner of existing GPU instances is unknown.
    #[must_use]
    pub fn machine(&self) -> Option<Machine> {
        (self.is_seen() && self.told_apart).then(|| Machine {
            driver_version: self.driver_version.clone(),
            cuda_driver_version: self.cuda_driver_version,
            cards: self.cards.values().cloned().collect(),
            pairs: self.pairs.clone(),
        })
    }

    /// Problems of the last look.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Cards reset or replaced before the last look, as far as detectable.
    pub(super) fn returned(&self) -> &[PciBusId] {
        &self.returned
    }

    /// Cards with an XID in a GPU instance of unknown place, with their instances.
    pub(super) fn instances_of_xids(&self) -> &[(PciBusId, Vec<GpuInstance>)] {
        &self.instances_of_xids
    }

    /// When each card was last read.
    pub(super) fn looks(&self) -> &Looks {
        &self.looks
    }

    /// Whether nothing is missing that may appear by itself.
    pub(super) fn is_settled(&self) -> bool {
        let registering = |card: &Card| {
            card.fabric.as_ref().is_some_and(|fabric| {
                matches!(fabric.state, FabricState::NotStarted | FabricState::InProgress)
            })
        };
        self.is_seen()
            && self.problems.is_empty()
            && self.accepts_confidential_work != Some(false)
            && !self.cards.values().any(registering)
            && !self.resets.wants_another_look()
    }

    fn is_seen(&self) -> bool {
        !self.addresses.is_empty()
    }

    fn finish(&mut self, problems: Problems) {
        self.problems = problems.into_vec();
        self.looks.unread = problem::lines(&self.problems);
        self.told.tell(&self.problems);
    }

    fn read_driver(&mut self, nvml: &Arc<dyn Nvml>, problems: &mut Problems) {
        let nvml = nvml.clone();
        let question = move || (nvml.driver_version(), nvml.cuda_version(), nvml.accepts_confidential_work());
        let Some((driver, cuda, accepts)) = self.readers.ask_one(Subject::Driver, question) else { return };
        self.driver_version =
            problems.take(None, "driverVersion", driver.map(Some), self.driver_version.take());
        let cuda = cuda.map(|version| Some(version.number()));
        self.cuda_driver_version = problems.take(None, "cudaDriverVersion", cuda, self.cuda_driver_version);
        self.accepts_confidential_work =
            problems.take(None, "confCompute", accepts, self.accepts_confidential_work);
    }

    /// Addresses of the cards. If the driver hangs or fails at one, the cards known from before are included.
    fn read_addresses(&mut self, nvml: &Arc<dyn Nvml>, problems: &mut Problems) -> Vec<PciBusId> {
        let found = Arc::new(Mutex::new(BTreeMap::new()));
        let (nvml, all) = (nvml.clone(), found.clone());
        let all = move || {
            nvml.each_address(&|index, address| {
                all.lock().unwrap_or_else(PoisonError::into_inner).insert(index, address);
            })
        };
        let answer = self.readers.ask_one(Subject::Cards, all);
        let mut present = BTreeSet::new();
        let found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
        for (index, address) in found {
            match address {
                Ok(pci) => {
                    present.insert(pci);
                }
                Err(error) => {
                    problems.add(None, "cards", format!("card with index {index} is left out: {error}"))
                }
            }
        }
        if let Some(Err(error)) = &answer {
            problems.add(None, "cards", error);
        }
        if !matches!(answer, Some(Ok(()))) {
            present.extend(&self.addresses);
        }
        if !present.is_empty() {
            self.addresses.clone_from(&present);
        }
        present.into_iter().collect()
    }

    /// Reads all cards. Returns the hanging ones.
    fn read_cards(
        &mut self,
        sources: &Sources,
        present: &[PciBusId],
        health: &HealthBook,
        problems: &mut Problems,
    ) -> BTreeSet<PciBusId> {
        let mut reading = self.reading(sources, present, health);
        if self.undivided.misses_something(&reading.cards, &reading.pairs) {
            reading = self.reading(sources, present, health);
        }
        let Reading { mut cards, mut pairs, gone, instances, counted, hanging, problems: found } = reading;
        let same_library =
            self.library.as_ref().is_some_and(|last| last.ptr_eq(&Arc::downgrade(&sources.nvml)));
        problems.append(found);
        let mut health = health.clone();
        for (pci, instances) in &instances {
            health.place(*pci, instances);
        }
        self.instances_of_xids = instances;
        let nvlink_down = self.links_up.learn(&cards);
        self.undivided.complete(&mut cards, &mut pairs);
        self.undivided.learn(&cards, &pairs);

        self.returned.clear();
        let mut live = Vec::new();
        for mut card in cards {
            let pci = card.pci;
            live.push(pci);
            card.health = if hanging.contains(&pci) {
                Health::NotAnswering
            } else {
                let now = LastSeen {
                    uuid: card.uuid.clone(),
                    driver_version: self.driver_version.clone(),
                    recovery: card.recovery,
                    lost: false,
                    was_reset: false,
                    counted: counted.get(&pci).copied().unwrap_or_default(),
                };
                if self.resets.learn(pci, now, same_library) {
                    self.returned.push(pci);
                    health.forget(pci);
                }
                Health::Healthy
            };
            faults::set(
                &mut card.faults,
                HealthClass::ConfComputeNotReady,
                self.accepts_confidential_work == Some(false),
            );
            faults::complete(&mut card, health.of(pci), nvlink_down.contains(&pci));
            self.cards.insert(pci, card);
        }
        for (pci, card) in &mut self.cards {
            if !live.contains(pci) {
                card.health = Health::Lost;
                self.resets.lose(*pci);
            }
        }
        for pci in gone {
            problems.add(Some(pci), "card", "it fell off the bus or needs a reset");
        }
        self.pairs = pairs;
        hanging
    }
}
