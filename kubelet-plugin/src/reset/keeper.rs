//! Resets one card after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tessera_api::health::HealthPolicy;
use tessera_api::{DeviceName, PciBusId};
use tessera_inventory::Machine;
use tessera_inventory::machine::Card;
use tessera_kube_util::events::{NodeEvents, Severity};
use tessera_publish::{PublishStatus, Role};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::decide::{Attempts, helps};
use crate::discovery::ResetCards;
use crate::driver::{DriverCloser, LetGo};
use crate::layout::{CardHolder, LayoutStatus};
use crate::nvidia_smi::NvidiaSmi;

/// Reasons of the Events.
const RESETTING: &str = "ResettingCard";
const RESET: &str = "CardReset";
const NOT_RESET: &str = "CardNotReset";

/// Longest wait for the lock of a card while claims are prepared there.
const LOCKED_WITHIN: Duration = Duration::from_secs(5);

/// How long to wait until the driver library is open, and closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(30);

/// How long a reset may take: some seconds, or up to half a minute with many NVLinks. Claims of the node wait meanwhile.
const RESET_WITHIN: Duration = Duration::from_secs(60);

/// Timing of the keeper.
#[derive(Clone, Copy, Debug)]
pub struct ResetPace {
    /// Interval between two looks at cards in need of a reset.
    pub retry: Duration,
    /// Time between the taint of a card and its reset. Claims already scheduled to the card are prepared meanwhile, and
    /// noticed.
    pub grace: Duration,
}

/// Resets cards in need of a reset, while no claim holds any part of them.
pub struct ResetKeeper<Holder> {
    /// The effect of each fault.
    pub policy: HealthPolicy,
    /// The machine by discovery.
    pub machines: watch::Receiver<Option<Arc<Machine>>>,
    /// The state of publishing: an instance on standby resets nothing.
    pub published: watch::Receiver<PublishStatus>,
    /// States of layouts: partitions of a layout are made again after a reset.
    pub layouts: watch::Receiver<LayoutStatus>,
    /// Keeps claims away.
    pub holder: Holder,
    /// Whether somebody else has the driver library closed: nothing is begun then.
    pub let_go: LetGo,
    /// Closes the driver library.
    pub closer: DriverCloser,
    /// The driver's tool.
    pub tool: NvidiaSmi,
    /// Receives each card after its reset.
    pub reset_cards: ResetCards,
    /// Sends Events of the node.
    pub of_node: NodeEvents,
    /// Timing.
    pub pace: ResetPace,
}

/// Memory about cards in need of a reset.
#[derive(Debug, Default)]
struct Known {
    /// Since when a reset helps each card, and its taint is out.
    since: BTreeMap<PciBusId, Instant>,
    attempts: BTreeMap<PciBusId, Attempts>,
    /// The obstacle to each reset, as last reported.
    told: BTreeMap<PciBusId, String>,
}

impl Default for ResetPace {
    /// Looks every 5 s; 10 s of grace.
    fn default() -> Self {
        ResetPace { retry: Duration::from_secs(5), grace: Duration::from_secs(10) }
    }
}

impl<Holder: CardHolder> ResetKeeper<Holder> {
    /// Works until `shutdown`; the tool still ends a reset in progress.
    pub async fn run(mut self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.keep()).await;
    }

    async fn keep(&mut self) {
        let mut known = Known::default();
        loop {
            let machine = self.machines.borrow_and_update().clone();
            let cards = machine.iter().flat_map(|machine| machine.cards_by_address());
            let helped: Vec<&Card> = cards.filter(|card| helps(card, &self.policy)).collect();
            let is_out = {
                let published = self.published.borrow();
                published.role == Role::Publishing && published.in_sync
            };
            known.learn(&helped, is_out, Instant::now());
            for card in &helped {
                if !*self.let_go.borrow() && known.is_due(card.pci, self.pace.grace, Instant::now()) {
                    self.reset(card, &mut known).await;
                }
            }
            tokio::select! {
                changed = self.machines.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(self.pace.retry), if !helped.is_empty() => {}
            }
        }
    }

    /// Resets the card if nothing is in the way.
    async fn reset(&self, card: &Card, known: &mut Known) {
        let name = DeviceName::Card(card.pci);
        let is_divided = card.mig.as_ref().is_some_and(|mig| !mig.instances.is_empty());
        if is_divided && !self.layouts.borrow().makes_again(card.pci) {
            let note = format!(
                "{name} is not reset by the plugin: it has partitions that somebody made by hand, and a reset destroys them"
            );
            if known.is_news(card.pci, &note) {
                self.tell(Severity::Warning, NOT_RESET, &note).await;
            }
            return;
        }
        let hold = match tokio::time::timeout(LOCKED_WITHIN, self.holder.hold(card.pci)).await {
            Ok(Ok(hold)) if hold.claims.is_empty() => hold,
            Ok(Ok(hold)) => return known.waits(card.pci, &format!("claim {}", hold.claims.join(", "))),
            Ok(Err(error)) => return known.waits(card.pci, &error),
            Err(_) => return known.waits(card.pci, "work on it"),
        };
        known.told.remove(&card.pci);
        let note = format!("{name} is being reset; claims of this node's cards wait for some seconds");
        self.tell(Severity::Normal, RESETTING, &note).await;
        let result = self.with_library_closed(card.pci, hold.guard).await;
        let attempts = known.attempts.entry(card.pci).or_default();
        attempts.add(Instant::now());
        match result {
            Ok(said) => self.tell(Severity::Normal, RESET, &format!("{name} was reset: {said}")).await,
            Err(error) => {
                let next = match attempts.pause() {
                    Some(pause) => format!("tried again in {} min", pause.as_secs().div_ceil(60)),
                    None => "not tried again: docs/health.md, Resetting a card".to_owned(),
                };
                self.tell(Severity::Warning, NOT_RESET, &format!("{name} was not reset: {error} ({next})"))
                    .await;
            }
        }
    }

    /// Closes the driver library, has the card reset, and lets the library be opened again. Returns the tool's words. A dropped
    /// call does not stop the work, and claims stay away from the card until its end.
    async fn with_library_closed(&self, card: PciBusId, guard: Holder::Guard) -> Result<String, String> {
        let closed = self.closer.close(format!("{} is being reset", DeviceName::Card(card)));
        let closed = tokio::time::timeout(CLOSED_WITHIN, closed).await;
        let closed = closed.map_err(|_| "the driver library is not open".to_owned())??;
        let (tool, reset_cards) = (self.tool.clone(), self.reset_cards.clone());
        let reset = move || {
            let said = tool.run(&["--gpu-reset", "-i", &card.to_string()], RESET_WITHIN);
            if said.is_ok() {
                reset_cards.add(card);
            }
            drop((closed, guard));
            said.map_err(|error| error.to_string())
        };
        let reset = tokio::task::spawn_blocking(reset).await;
        reset.map_err(|panic| format!("the reset broke off: {panic}"))?
    }

    async fn tell(&self, severity: Severity, reason: &'static str, note: &str) {
        match severity {
            Severity::Normal => tracing::info!("{note}"),
            Severity::Warning => tracing::warn!("{note}"),
        }
        self.of_node.send(severity, "Reset", reason, note).await;
    }
}

impl Known {
    /// Takes the cards now in need of a reset; `is_out` says whether their taints are published.
    fn learn(&mut self, helped: &[&Card], is_out: bool, now: Instant) {
        let helped: BTreeSet<PciBusId> = helped.iter().map(|card| card.pci).collect();
        self.since.retain(|card, _| helped.contains(card));
        self.told.retain(|card, _| helped.contains(card));
        self.attempts.retain(|card, attempts| helped.contains(card) || !attempts.are_over(now));
        if is_out {
            for card in helped {
                self.since.entry(card).or_insert(now);
            }
        } else {
            // Another instance's turn, or a taint is being written.
            self.since.clear();
        }
    }

    fn is_due(&self, card: PciBusId, grace: Duration, now: Instant) -> bool {
        let is_out = self.since.get(&card).is_some_and(|since| now.duration_since(*since) >= grace);
        is_out && self.attempts.get(&card).is_none_or(|attempts| attempts.may_try(now))
    }

    /// Whether the text is new for the card.
    fn is_news(&mut self, card: PciBusId, what: &str) -> bool {
        self.told.insert(card, what.to_owned()).as_deref() != Some(what)
    }

    /// Logs once why the card's reset waits.
    fn waits(&mut self, card: PciBusId, what: &str) {
        if self.is_news(card, what) {
            tracing::info!(%card, "a reset of the card waits for {what}");
        }
    }
}
