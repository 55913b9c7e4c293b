//! Feeds the decision loop and starts the resulting intents.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tessera_api::kubernetes::KubernetesVersion;
use tessera_api::waiting::{WAITING_ANNOTATION, Waiting};
use tessera_cluster::Kind;
use tessera_decide::{
    Decider, FleetSnapshot, Observation, PodReference, PoolSummary, QuotaSummary, ReclaimTo, Time, ViewPass,
};
use tessera_kube_util::lease::Leadership;
use tessera_kube_util::server_version::ServerVersion;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::carry_out::Writer;
use crate::clock::Clock;
use crate::listed::Listed;
use crate::metrics::Metrics;
use crate::waiting_notes::{WaitingNotes, WaitingPod};
use crate::watches::Seen;

/// Summaries by name.
#[derive(Debug, PartialEq)]
pub struct Known {
    /// Of GpuPools.
    pub pools: BTreeMap<String, PoolSummary>,
    /// Of GpuQuotas.
    pub quotas: BTreeMap<String, QuotaSummary>,
}

/// See [`Known`].
pub type Summaries = Arc<Known>;

/// Maximum observations processed before the next decision: enough to decide on a flood in few rounds.
const BATCH: usize = 4_096;

/// Interval of updating the summaries.
const SUMMARY: Duration = Duration::from_secs(5);

/// Time slice of building a view of the fleet, before the loop checks again for decisions to make.
const VIEW_STEP: Duration = Duration::from_millis(2);

/// See [`DecideLoop::patience`].
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The task around the decision loop.
pub struct DecideLoop {
    /// Observations of the watches.
    pub seen: mpsc::Receiver<Seen>,
    /// Outcomes of intents.
    pub carried: mpsc::UnboundedReceiver<Observation>,
    /// Carries intents out.
    pub writer: Writer,
    /// Requests for a view of the fleet.
    pub asks: mpsc::Receiver<oneshot::Sender<FleetSnapshot>>,
    /// The API server's version, from which kube-scheduler's is derived.
    pub kubernetes: ServerVersion,
    /// Whether this replica is the leader.
    pub leadership: watch::Receiver<Leadership>,
    /// Receives the summaries; `None` until all kinds are listed.
    pub summaries: watch::Sender<Option<Summaries>>,
    /// Receives the kinds not fully listed yet on whose listing decisions wait.
    pub missing: watch::Sender<BTreeSet<Kind>>,
    /// How long to wait for kinds not needed by all pods.
    pub patience: Duration,
    /// The metrics.
    pub metrics: Metrics,
    /// The loop's clock.
    pub clock: Clock,
    /// Name of the DRA driver.
    pub driver_name: String,
    /// Name of this replica.
    pub replica: String,
    /// How long a card must have been managed before allocation.
    pub handover: Duration,
    /// See [`Decider::with_heal_after`].
    pub heal_after: Duration,
    /// See [`Decider::with_gather_after`].
    pub gather_after: Duration,
    /// See [`Decider::with_quota_grace`].
    pub quota_grace: Duration,
    /// See [`Decider::with_quota_half_life`].
    pub quota_half_life: Duration,
    /// See [`Decider::with_exempt`].
    pub quota_exempt: Vec<String>,
    /// See [`Decider::with_reclaim_to`].
    pub quota_reclaim_to: ReclaimTo,
    /// See [`Decider::with_prices`].
    pub per_card_hour: BTreeMap<String, f64>,
    /// See [`Decider::with_partial_timeout`].
    pub partial_timeout: Duration,
    /// See [`Decider::with_topology_keys`].
    pub topology_keys: Vec<String>,
    /// See [`Decider::with_schedulers`].
    pub schedulers: Vec<String>,
}

impl DecideLoop {
    /// Runs until `shutdown`, or until the watches end.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let clock = self.clock;
        let mut decider = Decider::new(&self.driver_name, || Uuid::new_v4().to_string())
            .with_handover(self.handover)
            .with_heal_after(self.heal_after)
            .with_gather_after(self.gather_after)
            .with_quota_grace(self.quota_grace)
            .with_quota_half_life(self.quota_half_life)
            .with_exempt(std::mem::take(&mut self.quota_exempt))
            .with_reclaim_to(self.quota_reclaim_to)
            .with_prices(&self.per_card_hour)
            .with_partial_timeout(self.partial_timeout)
            .with_topology_keys(std::mem::take(&mut self.topology_keys))
            .with_schedulers(std::mem::take(&mut self.schedulers));
        let mut term = None;
        let mut listed = Listed::new(self.patience);
        let mut batch = VecDeque::new();
        let mut next_summary = Instant::now();
        let mut notes = WaitingNotes::default();
        let mut told_namespaces = BTreeSet::new();
        // The view of the fleet being built, and its requester.
        let mut viewing: Option<(ViewPass, oneshot::Sender<FleetSnapshot>)> = None;
        loop {
            let now = clock.now();
            // A follower decides nothing, so nothing is due.
            let leads = self.leadership.borrow().may_write(Instant::now());
            let is_waiting = !self.missing.borrow().is_empty();
            let wake = decider.wake().filter(|_| leads && !is_waiting);
            let wake = wake.map_or(SUMMARY, |wake| wake.saturating_sub(now));
            tokio::select! {
                () = shutdown.cancelled() => return,
                seen = self.seen.recv() => match seen {
                    Some(seen) => batch.push_back(seen),
                    None => return,
                },
                // Also before everything is listed: the view then shows the objects known so far.
                Some(ask) = self.asks.recv(), if viewing.is_none() => viewing = Some((ViewPass::default(), ask)),
                () = tokio::task::yield_now(), if viewing.is_some() => {}
                Some(carried) = self.carried.recv() => batch.push_back(Seen::Change(carried)),
                changed = self.leadership.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(wake.clamp(Duration::from_millis(1), SUMMARY)) => {}
            }
            if self.kubernetes.has_changed().unwrap_or_default() {
                let told = self.kubernetes.borrow_and_update().clone().unwrap_or_default();
                decider.predict(KubernetesVersion::of(&told).unwrap_or_default());
            }
            viewing = viewing.and_then(|(pass, ask)| self.view_some(&mut decider, pass, ask));
            while let Ok(carried) = self.carried.try_recv() {
                batch.push_back(Seen::Change(carried));
            }
            let now = clock.now();
            // One at a time: a thousand queued slices would take hundreds of megabytes.
            for _ in 0..BATCH {
                let Some(seen) = batch.pop_front().or_else(|| self.seen.try_recv().ok()) else { break };
                match seen {
                    Seen::Complete(kind) => listed.complete(kind),
                    Seen::Change(change) => {
                        if let Err(error) = decider.observe(now, change) {
                            self.metrics.unusable.inc();
                            tracing::warn!(%error, "an object cannot be used; it counts as absent");
                        }
                    }
                }
            }
            if !self.tell_missing(&mut listed) {
                continue;
            }
            decider.set_unlisted(listed.missing());
            let leadership = self.leadership.borrow_and_update().clone();
            let leads = leadership.may_write(Instant::now());
            let new_term = leadership.transitions().filter(|_| leads);
            if new_term != term {
                match new_term {
                    // The replica's name alone stays the same after a container restart.
                    Some(number) => {
                        decider.lead(now, &format!("{}-{number}-{}", self.replica, now.as_millis()));
                    }
                    None => decider.follow(),
                }
                term = new_term;
            }
            self.metrics.leads.set(leads.into());
            if leads {
                let begun = Instant::now();
                for intent in decider.decide(now) {
                    self.writer.start(intent);
                }
                self.metrics.round.observe(begun.elapsed().as_secs_f64());
            }
            self.metrics.waiting.set(i64::try_from(decider.waiting().count()).unwrap_or(i64::MAX));
            self.metrics.on_their_way.set(i64::try_from(decider.on_their_way()).unwrap_or(i64::MAX));
            if next_summary <= Instant::now() {
                if leads {
                    self.note_waiting(now, &decider, &mut notes);
                }
                self.metrics.oldest_waiting.set(oldest_waiting(&decider).unwrap_or_default());
                self.metrics.set_card_seconds(decider.card_seconds(), &mut told_namespaces);
                let summaries =
                    Arc::new(Known { pools: decider.pools(), quotas: decider.quotas_with_shortfalls() });
                self.metrics.quotas.send_replace(leads.then(|| summaries.clone()));
                self.summaries.send_if_modified(|known| {
                    let is_new = known.as_ref() != Some(&summaries);
                    if is_new {
                        *known = Some(summaries);
                    }
                    is_new
                });
                next_summary = Instant::now() + SUMMARY;
            }
        }
    }

    /// Publishes the kinds on whose listing decisions wait. Returns whether there are none.
    fn tell_missing(&self, listed: &mut Listed) -> bool {
        let waited_for = listed.waited_for(Instant::now());
        let is_enough = waited_for.is_empty();
        let changed = self.missing.send_if_modified(|told| {
            let is_new = *told != waited_for;
            *told = waited_for;
            is_new
        });
        if changed && is_enough && !listed.missing().is_empty() {
            let kinds = listed.missing();
            tracing::warn!(
                ?kinds,
                "cannot be listed: pods that may be of a gang of theirs wait, others do not"
            );
        }
        is_enough
    }

    /// Writes the waiting reason on pods waiting for long.
    fn note_waiting(&self, now: Time, decider: &Decider, notes: &mut WaitingNotes) {
        let waiting = decider.waiting().filter_map(|(key, message)| {
            let pod = decider.cluster().objects().pods.get(key)?;
            let noted = pod.metadata.annotations.as_ref().and_then(|all| all.get(WAITING_ANNOTATION));
            Some(WaitingPod {
                pod: PodReference { key: key.clone(), uid: pod.metadata.uid.clone()? },
                kind: decider.reason_of(key)?.kind(),
                message,
                noted: noted.and_then(|text| Waiting::decode(text)),
            })
        });
        for (pod, waiting) in notes.due(now, waiting) {
            self.writer.note_waiting(pod, waiting);
        }
    }

    /// Continues building a view of the fleet, and answers once complete.
    fn view_some(
        &self,
        decider: &mut Decider,
        mut pass: ViewPass,
        ask: oneshot::Sender<FleetSnapshot>,
    ) -> Option<(ViewPass, oneshot::Sender<FleetSnapshot>)> {
        let begun = Instant::now();
        let mut is_complete = false;
        while !is_complete && begun.elapsed() < VIEW_STEP {
            is_complete = !decider.view_next(&mut pass);
        }
        let left = if is_complete {
            // The requester may have gone.
            let _ = ask.send(decider.view(pass, self.clock.now()));
            None
        } else {
            Some((pass, ask))
        };
        self.metrics.view_step.observe(begun.elapsed().as_secs_f64());
        left
    }
}

/// When the oldest waiting pod was created, in seconds since the Unix epoch.
fn oldest_waiting(decider: &Decider) -> Option<i64> {
    let pods = &decider.cluster().objects().pods;
    let waiting =
        decider.waiting().filter_map(|(key, _)| pods.get(key)?.metadata.creation_timestamp.as_ref());
    waiting.map(|created| created.0.as_second()).min()
}

#[cfg(test)]
mod tests;
