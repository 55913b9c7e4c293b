//! Applies layouts to the node's cards.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use tessera_api::PciBusId;
use tessera_inventory::Machine;
use tessera_inventory::machine::Card;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::announce::Announcer;
use super::carry_out::{Outcome, carry_out};
use super::decide::{Decision, decide};
use super::look::look;
use super::metrics::LayoutMetrics;
use super::record::LayoutRecord;
use super::source::{Named, Wanted};
use super::status::{CardStatus, LayoutState, LayoutStatus, NO_LAYOUT};
use crate::driver::Driver;
use crate::gpu_pools::Resolution;
use tessera_inventory::layout::Desired;
use tessera_journal::{Journal, Stage};
use tessera_kube_util::error_text::with_causes;
use tessera_publish::{PublishStatus, Role};

/// Timing of the keeper.
#[derive(Clone, Copy, Debug)]
pub struct LayoutPace {
    /// Interval between two looks at file and cards without a cause.
    pub interval: Duration,
    /// Time until the next look at a card with a pending layout.
    pub retry: Duration,
    /// How long a card takes no new claims before a change. Claims already scheduled to the card are
    /// prepared in this time, and noticed.
    pub grace: Duration,
}

/// How long to wait until discovery sees the changes.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// How long one step of the work on a card may take. Instances take about a second each to make or to destroy.
const STEP: Duration = Duration::from_secs(60);

/// Keeps claims from a card during a change or reset.
pub trait CardHolder: Clone + Send + Sync + 'static {
    /// Holds the card until dropped.
    type Guard: Send + 'static;

    /// Takes the card's lock, undoes its waste, and returns the claims holding any part of the card.
    fn hold(&self, card: PciBusId) -> impl Future<Output = Result<CardHold<Self::Guard>, String>> + Send;

    /// The journal.
    fn journal(&self) -> Arc<Journal>;
}

/// A card on which no claim is being prepared.
#[derive(Debug)]
pub struct CardHold<Guard> {
    /// Claims holding any part of the card.
    pub claims: Vec<String>,
    /// Keeps others from the card until dropped.
    pub guard: Guard,
}

/// Keeps the cards laid out as the administrator wants.
pub struct LayoutKeeper<Holder> {
    /// The file of layouts, in `mig-parted`'s format.
    pub file: PathBuf,
    /// The layout assigned to each card.
    pub resolution: watch::Receiver<Option<Arc<Resolution>>>,
    /// This node.
    pub node_name: String,
    /// The DRA driver.
    pub driver_name: String,
    /// The API server.
    pub client: Client,
    /// The driver library.
    pub hardware: Driver,
    /// The machine from discovery.
    pub machines: watch::Receiver<Option<Arc<Machine>>>,
    /// Makes discovery look again.
    pub look_again: Arc<Notify>,
    /// Keeps claims away.
    pub holder: Holder,
    /// Receives the state of the cards.
    pub status: watch::Sender<LayoutStatus>,
    /// State of the publisher. An instance on standby leaves the cards to the publishing one.
    pub published: watch::Receiver<PublishStatus>,
    /// The metrics.
    pub metrics: LayoutMetrics,
    /// Timing.
    pub pace: LayoutPace,
    /// Whether nothing was published of this node before: then no claim can be on its way here.
    pub fresh: bool,
}

/// Result of looking at one card.
struct Looked {
    state: LayoutState,
    message: String,
    /// Whether the card was changed.
    changed: bool,
}

impl Default for LayoutPace {
    /// Looks every 30 s, every 5 s while a layout waits; 10 s of grace.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        LayoutPace { interval: seconds(30), retry: seconds(5), grace: seconds(10) }
    }
}

impl<Holder: CardHolder> LayoutKeeper<Holder> {
    /// Works until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&mut self) {
        let mut announcer =
            Announcer::new(self.client.clone(), &self.driver_name, &self.node_name, self.metrics.clone());
        let mut wanted = Wanted::default();
        let mut cards: BTreeMap<PciBusId, CardStatus> = BTreeMap::new();
        // Since when each card takes no new claims.
        let mut closed: BTreeMap<PciBusId, Instant> = BTreeMap::new();
        let mut resolutions_may_change = true;
        loop {
            let resolution = self.resolution.borrow_and_update().clone();
            let machine = self.machines.borrow_and_update().clone();
            let mut pause = self.pace.interval;
            if let (Some(machine), Some(resolution)) = (machine, resolution) {
                let read = wanted.read(&self.file, &resolution);
                announcer.source(read.err().map(|error| with_causes(&error))).await;
                cards = self.pass(&machine, &wanted, &cards, &mut closed).await;
                if cards.values().any(|status| status.state == LayoutState::Pending) {
                    pause = self.pace.retry;
                }
                announcer.cards(&cards).await;
                self.status.send_if_modified(|status| {
                    let next = LayoutStatus { settled: true, cards: cards.clone() };
                    let changed = *status != next;
                    *status = next;
                    changed
                });
            }
            tokio::select! {
                changed = self.machines.changed() => if changed.is_err() { return },
                changed = self.resolution.changed(), if resolutions_may_change => {
                    resolutions_may_change = changed.is_ok();
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Looks at every card, changes the cards free to change, and waits until discovery has seen the changes.
    async fn pass(
        &mut self,
        machine: &Machine,
        wanted: &Wanted,
        before: &BTreeMap<PciBusId, CardStatus>,
        closed: &mut BTreeMap<PciBusId, Instant>,
    ) -> BTreeMap<PciBusId, CardStatus> {
        let fresh = std::mem::take(&mut self.fresh);
        let publishes = self.published.borrow().role == Role::Publishing;
        let keeper = &*self;
        let known = |card: &Card| Some(wanted.of(card.pci)).filter(|_| card.health.answers()).flatten();
        let answering = machine.cards_by_address().into_iter();
        let looks =
            answering.filter_map(|card| known(card).map(|named| (card, named))).map(|(card, named)| {
                let closed = closed.get(&card.pci).copied();
                let (name, config) = match named {
                    Some((name, config)) => (name.as_str(), Some(&**config)),
                    None => ("", None),
                };
                let was_so = before
                    .get(&card.pci)
                    .is_some_and(|status| status.layout == name && status.state == LayoutState::Applied);
                let desired = Desired::of(config, card);
                async move {
                    if was_so && desired.is_seen(card) {
                        let looked =
                            Looked { state: LayoutState::Applied, message: String::new(), changed: false };
                        return (card.pci, desired, looked);
                    }
                    let ready = fresh
                        || (publishes && closed.is_some_and(|since| since.elapsed() >= keeper.pace.grace));
                    let looked = keeper.card(card, name, &desired, ready).await;
                    (card.pci, desired, looked)
                }
            });
        let looks = join_all(looks).await;
        let changed: BTreeMap<PciBusId, Desired> = looks
            .iter()
            .filter(|(_, _, looked)| looked.changed)
            .map(|(card, desired, _)| (*card, desired.clone()))
            .collect();
        // Cards with an unknown layout keep their status.
        let unknown = before.iter().filter(|(card, _)| wanted.of(**card).is_none());
        let mut cards: BTreeMap<_, _> = unknown.map(|(card, status)| (*card, status.clone())).collect();
        for (card, desired, Looked { state, message, .. }) in looks {
            if state == LayoutState::Pending {
                closed.entry(card).or_insert_with(Instant::now);
            } else {
                closed.remove(&card);
            }
            if desired == Desired::Untouched && state == LayoutState::Applied {
                continue;
            }
            let named: Option<&Named> = wanted.of(card).flatten();
            let layout = named.map_or_else(|| NO_LAYOUT.to_owned(), |(name, _)| name.clone());
            let (whole_only, is_fixed) = (desired == Desired::Off, matches!(desired, Desired::Fixed(_)));
            cards.insert(card, CardStatus { layout, state, message, whole_only, is_fixed });
        }
        if !changed.is_empty() {
            self.wait_until_seen(&changed).await;
        }
        cards
    }

    async fn card(&self, card: &Card, layout: &str, desired: &Desired, ready: bool) -> Looked {
        let looked = |state, message: String| Looked { state, message, changed: false };
        if let Desired::Impossible(reason) = desired {
            return looked(LayoutState::Failed, reason.clone());
        }
        match self.lay_out(card.pci, layout, desired, ready).await {
            Ok(looked) => looked,
            // Perhaps half done, so the card must take no new claims until the work is finished.
            Err(message) => looked(LayoutState::Pending, message),
        }
    }

    async fn lay_out(
        &self,
        card: PciBusId,
        layout: &str,
        desired: &Desired,
        ready: bool,
    ) -> Result<Looked, String> {
        let journal = self.holder.journal();
        let id = LayoutRecord::id(card);
        let stored = {
            let (journal, id) = (journal.clone(), id.clone());
            blocking(move || journal.hardware_record(&id)).await?.map_err(|error| with_causes(&error))?
        };
        let done = |state, message: String, changed| Ok(Looked { state, message, changed });
        if stored.is_none() && *desired == Desired::Untouched {
            return done(LayoutState::Applied, String::new(), false);
        }
        // Hold the card before taking the library: the card's present holder may be waiting until nobody has the library open.
        let hold = in_time(self.holder.hold(card)).await?;
        let nvml = self.hardware.borrow().clone().ok_or("the driver is gone")?;
        // The call keeps the card held, so repeated attempts leave a hanging call with a single thread.
        let (seen, hold) = {
            let nvml = nvml.clone();
            in_time(blocking(move || (look(&*nvml, card), hold))).await?
        };
        let seen = seen.map_err(|error| with_causes(&error))?;
        let Some(seen) = seen else { return Err("the card has no MIG any more".to_owned()) };
        let record = stored.as_ref().and_then(|stored| LayoutRecord::read(stored, &seen, journal.boot_id()));
        let failed = |error: tessera_journal::JournalError| with_causes(&error);
        match decide(layout, desired, &seen, record.as_ref(), &hold.claims) {
            Decision::Done(complete) => {
                let next = complete
                    .map(|record| record.to_hardware(card, &seen.uuid, journal.boot_id(), Stage::Complete));
                match next {
                    Some(next) if stored.as_ref() != Some(&next) => {
                        journal.put_hardware(&[&next]).await.map_err(failed)?
                    }
                    None if stored.is_some() => journal.remove_hardware(&id).await.map_err(failed)?,
                    _ => {}
                }
                done(LayoutState::Applied, String::new(), false)
            }
            Decision::NeedsReset { on } => done(LayoutState::NeedsReset, reset(on), false),
            Decision::Wait(obstacle) if obstacle.may_pass() => {
                done(LayoutState::Pending, obstacle.to_string(), false)
            }
            Decision::Wait(obstacle) => done(LayoutState::Failed, obstacle.to_string(), false),
            Decision::Do(_) if !ready => {
                done(LayoutState::Pending, "claims that are on their way are waited for".to_owned(), false)
            }
            Decision::Do(work) => {
                let intent = work.intent.to_hardware(card, &seen.uuid, journal.boot_id(), Stage::Intent);
                journal.put_hardware(&[&intent]).await.map_err(failed)?;
                let (complete, ordered) = (work.complete.clone(), work.ordered.clone());
                // The work goes on if this task is dropped, and holds the card until done.
                let (outcome, _hold) =
                    in_time(blocking(move || (carry_out(&*nvml, card, &work), hold))).await?;
                let outcome = outcome.map_err(|error| {
                    self.look_again.notify_one();
                    with_causes(&error)
                })?;
                let kept = if outcome == Outcome::Done { complete } else { ordered };
                match kept {
                    Some(kept) => {
                        let kept = kept.to_hardware(card, &seen.uuid, journal.boot_id(), Stage::Complete);
                        journal.put_hardware(&[&kept]).await.map_err(failed)?;
                    }
                    None => journal.remove_hardware(&id).await.map_err(failed)?,
                }
                match outcome {
                    Outcome::Done => done(LayoutState::Applied, String::new(), true),
                    Outcome::NeedsReset { on } => done(LayoutState::NeedsReset, reset(on), false),
                }
            }
        }
    }

    /// Waits until discovery has seen the changes: they must be published when the card takes claims again.
    async fn wait_until_seen(&mut self, changed: &BTreeMap<PciBusId, Desired>) {
        self.look_again.notify_one();
        let seen = |machine: &Option<Arc<Machine>>| {
            let cards = machine.iter().flat_map(|machine| &machine.cards);
            let mut changed = cards.filter_map(|card| Some((card, changed.get(&card.pci)?)));
            changed.all(|(card, desired)| !card.health.answers() || desired.is_seen(card))
        };
        if tokio::time::timeout(SEEN_WITHIN, self.machines.wait_for(seen)).await.is_err() {
            tracing::warn!("discovery has not seen what was laid out within {SEEN_WITHIN:?}");
        }
        self.machines.mark_changed();
    }
}

fn reset(on: bool) -> String {
    let mode = if on { "on" } else { "off" };
    format!("MIG mode is {mode} after a reset of the card (nvidia-smi --gpu-reset) or a reboot of the node")
}

/// Limits the time for one card, so a hanging card does not delay the layouts of the others.
async fn in_time<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = |_| format!("the card is being worked on, or does not answer, for {STEP:?} now");
    tokio::time::timeout(STEP, work).await.map_err(late)?
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| format!("the work broke off: {error}"))
}
