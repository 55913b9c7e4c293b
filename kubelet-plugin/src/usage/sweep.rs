//! Looks at all cards at an interval, and makes the report.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use tessera_api::PciBusId;
use tessera_inventory::Machine;
use tessera_inventory::machine::Card;
use tessera_journal::ClaimRecord;
use tessera_nvml::{DriverCalls, Nvml};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::claims::claims;
use super::look::{CardMemory, Look, look};
use super::pods::Owners;
use super::{CardReport, Report, UsageMetrics};
use crate::discovery::Looks;
use crate::driver::Driver;
use crate::prepare::Preparer;

/// How long the look at a card may take. A slower look is left running, and its card is out of the report until the look
/// returns.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks at the cards' activity.
pub struct UsageSweep {
    /// How often.
    pub interval: Duration,
    /// The driver library.
    pub hardware: Driver,
    /// The cards.
    pub machines: watch::Receiver<Option<Arc<Machine>>>,
    /// Lists hanging cards.
    pub looks: watch::Receiver<Looks>,
    /// Source of the claims.
    pub preparer: watch::Receiver<Option<Preparer>>,
    /// Where procfs is mounted.
    pub proc_root: PathBuf,
    /// Receives the reports.
    pub metrics: UsageMetrics,
}

/// State kept from sweep to sweep. The mutex is held during driver calls about the card.
type Memories = BTreeMap<PciBusId, Arc<Mutex<CardMemory>>>;

impl UsageSweep {
    /// Sweeps until `shutdown`, from the first card on.
    pub async fn run(mut self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.sweep_on()).await;
    }

    async fn sweep_on(&mut self) {
        let calls = DriverCalls::new(PATIENCE);
        let mut memories = Memories::new();
        let mut clock = tokio::time::interval(self.interval.max(Duration::from_millis(1)));
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if self.machines.wait_for(Option::is_some).await.is_err() {
            return;
        }
        loop {
            tokio::select! {
                _ = clock.tick() => {
                    let since = Instant::now();
                    let report = self.sweep(&calls, &mut memories).await;
                    self.metrics.swept(since.elapsed(), report);
                }
                changed = self.hardware.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // Samples keep the library open. A hanging call does so itself.
                    for memory in memories.values() {
                        if let Ok(mut memory) = memory.try_lock() {
                            memory.let_go();
                        }
                    }
                }
            }
        }
    }

    async fn sweep(&self, calls: &DriverCalls, memories: &mut Memories) -> Report {
        let machine = self.machines.borrow().clone().unwrap_or_default();
        let nvml = self.hardware.borrow().clone();
        let hanging = self.looks.borrow().hanging.clone();
        let cards: Vec<&Card> = machine.cards_by_address();
        memories.retain(|address, _| cards.iter().any(|card| card.pci == *address));
        let looks = nvml.into_iter().flat_map(|nvml| {
            let answering = cards.iter().filter(|card| card.health.answers() && !hanging.contains(&card.pci));
            answering.map(|card| (nvml.clone(), *card)).collect::<Vec<_>>()
        });
        let looks = looks.map(|(nvml, card)| {
            let memory = memories.entry(card.pci).or_default().clone();
            self.look(calls, nvml, card, memory)
        });
        let looks: BTreeMap<PciBusId, Look> =
            join_all(looks.collect::<Vec<_>>()).await.into_iter().flatten().collect();
        let records = self.records().await;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (machine, proc_root) = (machine.clone(), self.proc_root.clone());
        let report = move || report(at, &machine, looks, &records, Owners::new(proc_root));
        tokio::task::spawn_blocking(report).await.unwrap_or_default()
    }

    async fn look(
        &self,
        calls: &DriverCalls,
        nvml: Arc<dyn Nvml>,
        card: &Card,
        memory: Arc<Mutex<CardMemory>>,
    ) -> Option<(PciBusId, Look)> {
        let (address, uuid, metrics) = (card.pci, card.uuid.clone(), self.metrics.clone());
        let question = move || {
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            look(&*nvml, address, uuid.as_deref(), &mut memory, &metrics)
        };
        match calls.ask(address, question).await {
            Ok(Ok(look)) => Some((address, look)),
            // Counted and logged at its source.
            Ok(Err(_)) => None,
            Err(error) => {
                self.metrics.failed("card");
                tracing::debug!(card = %address, %error, "what a card does is not known");
                None
            }
        }
    }

    async fn records(&self) -> Vec<Arc<ClaimRecord>> {
        let preparer = self.preparer.borrow().clone();
        let Some(preparer) = preparer else { return Vec::new() };
        preparer.prepared_claims().await.unwrap_or_else(|error| {
            self.metrics.failed("claims");
            tracing::debug!(%error, "what claims use is not known");
            Vec::new()
        })
    }
}

fn report(
    at: u64,
    machine: &Machine,
    mut looks: BTreeMap<PciBusId, Look>,
    records: &[Arc<ClaimRecord>],
    mut owners: Owners,
) -> Report {
    let cards = machine.cards_by_address();
    let facts = cards.iter().map(|card| (card.pci, *card)).collect();
    let (claims, allocated) =
        claims(records.iter().map(|record| &**record), &facts, &looks, |pid| owners.of(pid));
    let with_look = cards.into_iter().filter_map(|card| Some((card, looks.remove(&card.pci)?)));
    let cards = with_look.map(|(card, look)| CardReport::new(card, look, &allocated)).collect();
    Report { at, cards, claims }
}
