//! The decision loop: observations in, intents out.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::kubernetes::KubernetesVersion;
use tessera_api::managed::PlannedMove;
use tessera_cluster::{Asker, Cluster, Key, Kind};
use tessera_placement::Time;

use crate::gathering::Periods;
use crate::idle::successors;
use crate::intent::Intent;
use crate::observation::{Observation, ObservationError};
use crate::observe::{self, answers};
use crate::round::Round;
use crate::state::State;
use crate::summary::PoolSummary;
use crate::teams::{self, Prices, QuotaSummary, ReclaimTo};
use crate::upkeep::{idle, overdue, overlaps, overuse, unclaimed, unready};
use crate::view::{FleetSnapshot, ViewPass};
use crate::wait_reason::WaitReason;
use crate::{admission, fencing, fleet_view, learn, paused, places, pools, predict, tell, turns};

/// The decision loop.
pub struct Decider {
    state: State,
}

impl Decider {
    /// A decision loop for the devices of this DRA driver, with an empty cluster. Observe all existing objects before the first
    /// [`Self::decide`].
    ///
    /// `share_id` returns the id of each new share of a device: a UUID never used before by anybody. kube-scheduler distinguishes
    /// the shares of a device by this id.
    #[must_use]
    pub fn new(driver_name: &str, share_id: impl FnMut() -> String + Send + 'static) -> Self {
        Decider { state: State::new(driver_name, Asker::new(share_id)) }
    }

    /// How long a card must have been tainted as managed before allocation: for so long, kube-scheduler may still write an
    /// allocation decided before the taint. One minute by default.
    #[must_use]
    pub fn with_handover(mut self, handover: Time) -> Self {
        self.state.leadership.handover = handover;
        self
    }

    /// How long preparation of a claim's devices must have failed, for a lasting reason, before their cards are avoided
    /// and pods evicted. Five minutes by default.
    #[must_use]
    pub fn with_heal_after(mut self, heal_after: Time) -> Self {
        self.state.healing.after = heal_after;
        self
    }

    /// How long some pods of a gang may run while the others find no room, unless the gang says otherwise
    /// ([`tessera_api::gang::PARTIAL_TIMEOUT_ANNOTATION`]). Two minutes by default.
    #[must_use]
    pub fn with_partial_timeout(mut self, partial_timeout: Time) -> Self {
        self.state.config.partial_timeout = partial_timeout;
        self
    }

    /// How long a new leader lets no pods move: earlier moves are unknown, so the hour counts as used up. Owners with
    /// a pod younger than a day are left alone for 24 times as long. An hour by default.
    #[must_use]
    pub fn with_gather_after(mut self, gather_after: Time) -> Self {
        let periods = &mut self.state.gathering.periods;
        (periods.quiet, periods.quiet_of_owners) = (gather_after, gather_after * 24);
        self
    }

    /// How long nothing is taken back for a team after a GpuQuota or its namespaces changed. One minute by default.
    #[must_use]
    pub fn with_quota_grace(mut self, grace: Time) -> Self {
        self.state.world.teams.grace = grace;
        self
    }

    /// Half-life of the use by which teams take turns: a time counts half as much as one a half-life later. Zero: the use of now
    /// decides. Seven days by default.
    #[must_use]
    pub fn with_quota_half_life(mut self, half_life: Time) -> Self {
        self.state.world.teams.hours.half_life = half_life;
        self
    }

    /// Priority classes whose pods are charged to their team, and refused for no quota: they go before all teams, and may preempt pods
    /// of lower priority of any team. None by default.
    #[must_use]
    pub fn with_exempt(mut self, priority_classes: Vec<String>) -> Self {
        self.state.world.teams.exempt = priority_classes.into_iter().collect();
        self
    }

    /// How much devices are taken back for a team. [`ReclaimTo::Guarantee`] by default.
    #[must_use]
    pub fn with_reclaim_to(mut self, reclaim_to: ReclaimTo) -> Self {
        self.state.world.teams.reclaim_to = reclaim_to;
        self
    }

    /// How long moves count to `perHour` of [`tessera_api::gpu_pool::Gather`], and for how long no second pod of an owner moves. An hour and a day
    /// by default; shorter where time is virtual and a run short.
    #[must_use]
    pub fn with_gather_periods(mut self, hour: Time, day: Time) -> Self {
        self.state.gathering.periods = Periods { hour, day, quiet: hour, quiet_of_owners: day };
        self
    }

    /// Prices of an hour of a card, by product name: in the order of teams a card of twice the price counts twice. The cheapest card
    /// counts as one, and so does a card without a price. None by default.
    #[must_use]
    pub fn with_prices(mut self, per_card_hour: &BTreeMap<String, f64>) -> Self {
        self.state.world.teams.prices = Prices::new(per_card_hour);
        self
    }

    /// Predicts kube-scheduler of the API server's release from now on. The newest known release by default.
    pub fn predict(&mut self, kubernetes: KubernetesVersion) {
        self.state.world.asker.set_kubernetes(kubernetes);
    }

    /// Node labels of topology domains, narrowest first: pods of a gang are kept within one domain of the first label with enough
    /// room. Racks, then zones, by default.
    #[must_use]
    pub fn with_topology_keys(mut self, topology_keys: Vec<String>) -> Self {
        self.state.world.topology_keys = topology_keys;
        self
    }

    /// Schedulers, by `schedulerName`, whose pods get devices of managed cards. They must report scheduling results as
    /// kube-scheduler does, or devices would stay with pods nobody places. `default-scheduler` by default.
    #[must_use]
    pub fn with_schedulers(mut self, schedulers: Vec<String>) -> Self {
        self.state.config.schedulers = schedulers;
        self
    }

    /// From now on this replica leads. `epoch` differs from that of every other term. Without this, no managed card is
    /// allocated.
    pub fn lead(&mut self, now: Time, epoch: &str) {
        fencing::lead(&mut self.state, now, epoch);
    }

    /// From now on this replica does not lead.
    pub fn follow(&mut self) {
        fencing::follow(&mut self.state.ledger, &mut self.state.leadership, &mut self.state.marks);
    }

    /// From now on all objects were observed except those of these kinds: only Jobs, JobSets, LeaderWorkerSets, PodGroups,
    /// PodDisruptionBudgets and Kueue's kinds may be missing. Without budgets nobody is preempted.
    pub fn set_unlisted(&mut self, kinds: &BTreeSet<Kind>) {
        observe::set_unlisted(&mut self.state.world, &mut self.state.waits, &mut self.state.gangs, kinds);
    }

    /// Processes an observation.
    ///
    /// # Errors
    /// The object contains a value the API server would not accept. The object then counts as deleted.
    pub fn observe(&mut self, now: Time, observation: Observation) -> Result<(), ObservationError> {
        let state = &mut self.state;
        match observation {
            Observation::Applied(object) => return observe::apply(state, now, *object),
            Observation::Unreadable { kind, key, why, holds } => {
                return observe::apply_unreadable(state, now, kind, &key, why, holds);
            }
            Observation::Deleted(kind, key) => observe::delete(state, now, kind, &key),
            Observation::ClaimsWritten { claims, is_done } => {
                answers::claims_written(state, now, &claims, is_done);
            }
            Observation::ClaimRefused { claim, pod, why } => {
                answers::claim_refused(state, now, &claim, pod.as_ref(), why);
            }
            Observation::PodRefused { pod, why } => {
                let (world, waits) = (&mut state.world, &mut state.waits);
                paused::pod_refused(world, waits, &mut state.refusals, now, &pod, &why);
            }
            Observation::ClaimsListed { asked_at } => {
                answers::claims_listed(&mut state.world, &mut state.leadership, asked_at);
            }
            Observation::Evicted { pod, is_done } => {
                answers::evicted(&mut state.ledger, &mut state.healing, now, &pod, is_done);
                if !is_done {
                    state.gathering.set_failed(&pod, now);
                    state.successors.refused(&pod, now);
                    state.ledger.nominations.look_again();
                    state.waits.begin_anew();
                }
            }
            Observation::Answered { workload, is_done } => {
                state.checks.answered(&workload.key, &workload.uid, is_done, now);
            }
            Observation::Carried { pod, is_done, versions } => {
                answers::carried(state, now, &pod, is_done, &versions);
            }
        }
        Ok(())
    }

    /// Returns the intents to carry out now.
    pub fn decide(&mut self, now: Time) -> Vec<Intent> {
        let state = &mut self.state;
        state.round = Round::after(&state.round, state.world.rankings.judged());
        let world = &mut state.world;
        world.teams.count_hours(now);
        world.teams.follow(&mut world.cluster, &world.driver, now);
        world.teams.open_books(&world.cluster, now);
        if world.teams.follow_budgets() {
            state.ledger.nominations.look_again();
            state.waits.begin_anew();
        }
        learn::count_arrivals(&mut state.world, &mut state.round, &mut state.learned);
        predict::adopt(state);
        predict::assume_anew(state);
        let mut intents = fencing::try_refused_again(state, now);
        intents.extend(fencing::prepare_term(state, now));
        overdue::give_up_overdue(state, now);
        places::follow(state, now);
        admission::follow(state, now);
        intents.extend(overlaps::resolve_overlaps(state));
        intents.extend(unclaimed::clear_unclaimed(state));
        intents.extend(unready::heal(state, now));
        intents.extend(idle::evict(state, now));
        intents.extend(overuse::evict(state, now));
        successors::find(state, now);
        intents.extend(overdue::note(state));
        if state.refusals.end(now) {
            state.waits.mark_all_due();
        }
        intents.extend(turns::take_all(state, now));
        intents.extend(admission::answer_all(state, now));
        intents.extend(tell::held_back(state, now));
        state.world.teams.note_use(&state.world.cluster, &state.ledger);
        intents
    }

    /// Places kept for successors of moving pods, each with the waiting pod and whether the place counts as taken: otherwise a successor
    /// has devices, or the node is not known.
    pub fn places(&self) -> impl Iterator<Item = (&Key, &PlannedMove, bool)> {
        let places = self.state.gathering.places.iter();
        places.map(|place| (&place.waiting, &place.planned, place.is_held))
    }

    /// When to call [`Self::decide`] again even if nothing is observed.
    #[must_use]
    pub fn wake(&self) -> Option<Time> {
        let state = &self.state;
        let ends = state.refusals.next_end().filter(|_| state.waits.pods().next().is_some());
        let heals = state.healing.next_due().filter(|_| state.leadership.term.is_some());
        let idle = state.idle.next_due().filter(|_| state.leadership.term.is_some());
        let overuse = state.overuse.next_due().filter(|_| state.leadership.term.is_some());
        let term = fencing::next_of_term(&state.world, &state.ledger, &state.leadership);
        let period = state.world.teams.next_period().filter(|_| state.leadership.term.is_some());
        let pods = [state.waits.next_due(), state.ledger.pods.next_due(), state.gangs.next_due()];
        let places = state.gathering.next_end();
        let checks = state.checks.next_due().filter(|_| admission::may_answer(state));
        let all = pods.into_iter().chain([ends, term, heals, idle, overuse, places, period, checks]);
        all.flatten().min()
    }

    /// Waiting pods, each with its reason: pods with our gate, and pods asking for managed cards but without any.
    pub fn waiting(&self) -> impl Iterator<Item = (&Key, &str)> {
        fleet_view::waiting_pods(&self.state)
    }

    /// Why the pod waits; `None` for pods not looked at, or not yet.
    #[must_use]
    pub fn reason_of(&self, pod: &Key) -> Option<&WaitReason> {
        self.state.waits.reason(pod)
    }

    /// The summary of each GpuPool reported by a node.
    pub fn pools(&mut self) -> BTreeMap<String, PoolSummary> {
        pools::pools(&mut self.state)
    }

    /// The use of each GpuQuota, as of the last [`Self::decide`]; whether guarantees can be kept is left out.
    #[must_use]
    pub fn quotas(&self) -> BTreeMap<String, QuotaSummary> {
        teams::summaries(&self.state)
    }

    /// The same, with the guarantees that cannot be kept.
    pub fn quotas_with_shortfalls(&mut self) -> BTreeMap<String, QuotaSummary> {
        let mut summaries = self.quotas();
        teams::add_shortfalls(&mut self.state.world, &mut summaries);
        summaries
    }

    /// Seconds of a card allocated to each namespace since this began to decide, while there were GpuQuotas.
    pub fn card_seconds(&self) -> impl Iterator<Item = (&str, u64)> {
        self.state.world.teams.hours.of_namespaces()
    }

    /// Adds the next node to the view; `false` once complete. Each node is shown as of its turn.
    pub fn view_next(&mut self, pass: &mut ViewPass) -> bool {
        fleet_view::view_next(&mut self.state.world, pass)
    }

    /// Ends a pass: its nodes, and the pods waiting now.
    #[must_use]
    pub fn view(&self, pass: ViewPass, now: Time) -> FleetSnapshot {
        fleet_view::finish_view(&self.state, pass, now)
    }

    /// Number of pods in flight to the node proposed for them.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.state.ledger.pods.proposed()
    }

    /// The known state of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.state.world.cluster
    }
}
