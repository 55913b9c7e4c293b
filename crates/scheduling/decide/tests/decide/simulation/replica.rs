//! A replica of the controller: the loop, fed by watches, leader election, and rounds of decisions.

mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_cluster::{Key, Kind, Object};
use tessera_decide::{Decider, Intent, Observation, PodReference, Time};

use super::api_server::{Seen, Server, Surroundings};
use super::bug::Bug;
use super::checks;
use super::checks::on_the_way::{self, OnTheWay};
use super::checks::teams::Terms;
use super::faults::Incident;
use super::oracle::View;
use super::quotas::{EXEMPT, GRACE};
use crate::objects::{DRIVER, share_ids};
use writing::Writing;

/// The lease for leader election.
#[derive(Debug, Default)]
pub struct Lease {
    holder: Option<usize>,
    renewed: Time,
}

const LEASE: Time = Time::from_secs(15);
const RENEW_DEADLINE: Time = Time::from_secs(10);
const RETRY: Time = Time::from_secs(2);

/// Refusals count for five minutes.
const SOON: Time = Time::from_secs(310);

/// The longest time between two rounds.
const ROUND: Time = Time::from_secs(5);

/// Most immediate repetitions of a round: a round may have a budget, and leave work to the next.
const MOST_AT_ONCE: usize = 50;

enum State {
    Up,
    /// Paused until then, without noticing.
    Paused(Time),
    Down(Time),
}

/// How long kube-scheduler may still write earlier decisions.
pub const HANDOVER: Time = Time::from_secs(30);

fn decider(around: &Surroundings) -> Decider {
    let handover = if around.has(Bug::HandoverSkipped) { Time::ZERO } else { HANDOVER };
    let grace = if around.has(Bug::GraceSkipped) { Time::ZERO } else { GRACE };
    Decider::new(DRIVER, share_ids())
        .with_handover(handover)
        .with_quota_grace(grace)
        .with_exempt(vec![EXEMPT.0.to_owned()])
        .with_reclaim_to(around.reclaim_to)
}

/// Kinds that only gangs and preemption need.
const NOT_FOR_ALL: [Kind; 5] =
    [Kind::Job, Kind::JobSet, Kind::LeaderWorkerSet, Kind::PodGroup, Kind::DisruptionBudget];

/// How long decisions wait for them.
const PATIENCE: Time = Time::from_secs(10);

/// A replica.
pub struct Replica {
    pub number: usize,
    watch: usize,
    pub decider: Decider,
    state: State,
    missing: BTreeSet<Kind>,
    /// When every kind was listed that all pods need.
    listed: Option<Time>,
    /// Objects as truthfully observed.
    pub view: View,
    writings: Vec<Writing>,
    /// Observations made up by a planted bug.
    at_once: Vec<Observation>,
    leads_until: Time,
    /// Whether the loop knows that it leads.
    is_told: bool,
    has_led: bool,
    next_lease: Time,
    next_round: Time,
    is_new: bool,
    /// Pods sent to a node by this process and, as far as known, still on their way.
    pub sent: BTreeMap<PodReference, String>,
    /// Claims observed with devices: if free again, their pods were refused or are gone.
    pub allocated: BTreeSet<Key>,
    /// Time of the last intent, apart from reasons told for the first time.
    pub last_intent: Time,
    told: BTreeMap<PodReference, String>,
    /// Time of the last intent for each pod.
    pub acted: BTreeMap<Key, Time>,
    pub on_the_way: OnTheWay,
    pub terms: Terms,
}

impl Replica {
    pub fn new(around: &mut Surroundings, server: &mut Server, number: usize) -> Self {
        Replica {
            number,
            watch: server.watch(around),
            decider: decider(around),
            state: State::Up,
            missing: server.kinds().iter().copied().collect(),
            listed: None,
            view: View::new(),
            writings: Vec::new(),
            at_once: Vec::new(),
            leads_until: Time::ZERO,
            is_told: false,
            has_led: false,
            next_lease: Time::ZERO,
            next_round: Time::ZERO,
            is_new: true,
            sent: BTreeMap::new(),
            allocated: BTreeSet::new(),
            last_intent: Time::ZERO,
            told: BTreeMap::new(),
            acted: BTreeMap::new(),
            on_the_way: OnTheWay::default(),
            terms: Terms::default(),
        }
    }

    pub fn step(&mut self, around: &mut Surroundings, server: &mut Server, lease: &mut Lease) {
        self.arrive(around, server);
        match self.state {
            State::Paused(until) | State::Down(until) if until > around.now => return,
            State::Down(_) => self.start(around, server),
            State::Paused(_) => self.state = State::Up,
            State::Up if around.is_faulty && around.rng.u32(0..1_500) == 0 => {
                return self.crash_by_chance(around);
            }
            State::Up if around.is_faulty && around.rng.u32(0..1_500) == 0 => {
                let time = around.between(1_000, 40_000);
                return self.meet(around, Incident::Pause(time));
            }
            State::Up => {}
        }
        self.look(around, server);
        on_the_way::are_counted(around, self, server);
        self.answers(around, lease);
        on_the_way::are_counted(around, self, server);
        if !matches!(self.state, State::Up) {
            return;
        }
        self.elect(around, lease);
        self.round(around, server, lease);
    }

    fn crash_by_chance(&mut self, around: &mut Surroundings) {
        let time = around.between(200, 20_000);
        self.meet(around, Incident::Crash(time));
    }

    pub fn meet(&mut self, around: &mut Surroundings, incident: Incident) {
        let time = match incident {
            Incident::Crash(time) => time,
            Incident::Pause(time) => {
                around.note(|| format!("replica {} pauses", self.number));
                self.state = State::Paused(around.now + time);
                return;
            }
        };
        around.note(|| format!("replica {} crashes", self.number));
        self.state = State::Down(around.now + time);
        self.leads_until = Time::ZERO;
        self.has_led = false;
        self.sent.clear();
        self.on_the_way = OnTheWay::default();
        // Requests in flight still arrive.
        self.writings.retain(|writing| !writing.has_arrived);
        for writing in &mut self.writings {
            (writing.is_forgotten, writing.is_of_earlier_process) = (true, true);
        }
    }

    fn start(&mut self, around: &mut Surroundings, server: &mut Server) {
        around.note(|| format!("replica {} starts", self.number));
        self.state = State::Up;
        server.watch_anew(around, self.watch);
        self.decider = decider(around);
        self.is_told = false;
        self.missing = server.kinds().iter().copied().collect();
        self.listed = None;
        self.view.clear();
        self.allocated.clear();
        self.at_once.clear();
        self.terms = Terms::default();
        self.next_round = around.now;
    }

    fn look(&mut self, around: &mut Surroundings, server: &mut Server) {
        for observation in std::mem::take(&mut self.at_once) {
            self.observe(around, observation);
            self.is_new = true;
        }
        for seen in server.poll(around, self.watch) {
            let observation = match seen {
                Seen::Applied(object) => {
                    let name = (object.kind(), Key::from(object.metadata()));
                    if let Object::ResourceClaim(claim) = object.as_ref()
                        && claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
                    {
                        self.allocated.insert(name.1.clone());
                    }
                    let before = self.view.insert(name, Arc::clone(&object));
                    match around.bug {
                        Some(bug) => bug.observation(&object, before.as_ref()),
                        None => Some(Observation::Applied(Box::new(object.as_ref().clone()))),
                    }
                }
                Seen::Deleted(kind, key) => {
                    self.view.remove(&(kind, key.clone()));
                    let is_hidden = around.bug.is_some_and(|bug| bug.hides_deletion(kind));
                    (!is_hidden).then_some(Observation::Deleted(kind, key))
                }
                Seen::Complete(kind, asked_at) => {
                    self.missing.remove(&kind);
                    (kind == Kind::ResourceClaim).then_some(Observation::ClaimsListed { asked_at })
                }
            };
            if let Some(observation) = observation {
                let more = around.bug.and_then(|bug| bug.observation_after(&observation));
                self.observe(around, observation);
                more.into_iter().for_each(|more| self.observe(around, more));
            }
            self.is_new = true;
        }
        checks::forget_arrived(self);
    }

    fn observe(&mut self, around: &mut Surroundings, observation: Observation) {
        if let Err(error) = self.decider.observe(around.now, observation) {
            around.violated(|| format!("a good observation was refused: {error}"));
        }
        self.check_taken(around);
    }

    /// Checks the index against the devices of all holders, after every observation and decision.
    fn check_taken(&self, around: &mut Surroundings) {
        // Rebuilding the index would cost more than all else in the many runs with pairs of faults.
        if around.plan.is_some() {
            return;
        }
        if let Err(difference) = self.decider.cluster().check_taken() {
            around.violated(|| difference);
        }
    }

    fn may_write(&self, around: &Surroundings) -> bool {
        around.now < self.leads_until || (around.has(Bug::LeadershipNotChecked) && self.has_led)
    }

    fn elect(&mut self, around: &mut Surroundings, lease: &mut Lease) {
        if self.next_lease > around.now {
            return;
        }
        self.next_lease = around.now + RETRY;
        let is_free =
            lease.holder.is_none_or(|holder| holder == self.number) || around.now > lease.renewed + LEASE;
        if is_free && !around.fault(25) {
            if lease.holder != Some(self.number) || !self.may_write(around) {
                self.is_new = true;
                self.is_told = false;
                around.note(|| format!("replica {} leads", self.number));
            }
            *lease = Lease { holder: Some(self.number), renewed: around.now };
            self.leads_until = around.now + RENEW_DEADLINE;
            self.has_led = true;
        }
    }

    /// Whether decisions may begin, by the controller's rule (`controller/src/listed.rs`).
    fn is_listed(&mut self, now: Time) -> bool {
        if self.missing.iter().any(|kind| !NOT_FOR_ALL.contains(kind)) {
            return false;
        }
        let listed = *self.listed.get_or_insert(now);
        self.missing.is_empty() || now >= listed + PATIENCE
    }

    fn round(&mut self, around: &mut Surroundings, server: &mut Server, lease: &Lease) {
        if !self.may_write(around) && std::mem::take(&mut self.is_told) {
            self.decider.follow();
        }
        let is_complete = self.is_listed(around.now) || around.has(Bug::DecidesBeforeTheListIsComplete);
        if !is_complete || !self.may_write(around) {
            return;
        }
        if !around.has(Bug::DecidesBeforeTheListIsComplete) {
            self.decider.set_unlisted(&self.missing);
        }
        if !std::mem::replace(&mut self.is_told, true) {
            self.decider.lead(around.now, &format!("{}-{}", self.number, around.now.as_millis()));
        }
        let wakes = self.decider.wake().is_some_and(|wake| wake <= around.now);
        let is_due = self.is_new
            || (wakes && !around.has(Bug::WakeIgnored))
            || (self.next_round <= around.now && !around.has(Bug::WakeIgnored));
        if !is_due {
            return;
        }
        if around.has(Bug::SteersNotCounted) {
            for pod in self.sent.keys().cloned().collect::<Vec<_>>() {
                let Some(object) = self.view.get(&(Kind::Pod, pod.key.clone())).cloned() else { continue };
                self.observe(around, Observation::Deleted(Kind::Pod, pod.key));
                self.observe(around, Observation::Applied(Box::new(object.as_ref().clone())));
            }
        }
        self.is_new = false;
        self.next_round = around.now + ROUND;
        checks::teams::look(around, self);
        for _ in 0..MOST_AT_ONCE {
            let intents = self.decider.decide(around.now);
            self.check_taken(around);
            for intent in intents {
                around.note(|| format!("replica {}: {intent:?}", self.number));
                if self.is_news(&intent) {
                    self.last_intent = around.now;
                }
                self.take(around, server, lease, intent);
                if matches!(self.state, State::Down(_)) {
                    return;
                }
            }
            checks::gangs::are_whole_or_gone(around, self);
            on_the_way::are_counted(around, self, server);
            on_the_way::are_apart_and_wait(around, self, server);
            if self.decider.wake().is_none_or(|wake| wake > around.now) {
                return;
            }
        }
        around.violated(|| "it wants to be called again at once without end".to_owned());
    }

    /// Whether the intent is more than a new reason: a new one changes nothing, and comes late where nodes are reserved.
    fn is_news(&mut self, intent: &Intent) -> bool {
        let Intent::Tell { pod, message, .. } = intent else { return true };
        self.told.insert(pod.clone(), message.clone()).as_ref() == Some(message)
    }

    /// Whether the replica is away, or has a write in flight.
    pub fn is_busy(&self) -> bool {
        !matches!(self.state, State::Up) || self.is_writing()
    }

    /// Whether the replica leads and wakes up before long: nodes are reserved for a gang only after ten minutes.
    pub fn will_wake(&self, around: &Surroundings) -> bool {
        self.is_told
            && self.may_write(around)
            && self.decider.wake().is_some_and(|wake| wake < around.now + SOON)
    }

    /// Whether the loop knows that it leads.
    pub fn leads(&self) -> bool {
        self.is_told
    }

    /// Holds back events of this kind until then.
    pub fn silence(&self, server: &mut Server, kind: Kind, until: Time) {
        server.silence(self.watch, kind, until);
    }

    /// Ends a pause or crash.
    pub fn recover(&mut self) {
        if let State::Paused(until) | State::Down(until) = &mut self.state {
            *until = Time::ZERO;
        }
    }
}
