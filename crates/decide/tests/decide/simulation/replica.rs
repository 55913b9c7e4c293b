//! A replica of the controller: the loop, fed by watches, and the writes that carry its intents out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_cluster::{Key, Kind, Object};
use tessera_decide::{ClaimAllocation, ClaimReference, Decider, Intent, Observation, PodReference, Time};

use super::api_server::{Answer, KINDS, Seen, Server, Surroundings};
use super::bug::Bug;
use super::checks;
use crate::objects::{DRIVER, share_ids};

/// The lease by which replicas agree who leads.
#[derive(Debug, Default)]
pub struct Lease {
    holder: Option<usize>,
    renewed: Time,
}

const LEASE: Time = Time::from_secs(15);
const RENEW_DEADLINE: Time = Time::from_secs(10);
const RETRY: Time = Time::from_secs(2);

/// The longest wait for an answer.
const PATIENCE: Time = Time::from_secs(10);

/// The longest time between two rounds.
const ROUND: Time = Time::from_secs(5);

enum State {
    Up,
    /// Stands still, knows nothing of it.
    Paused(Time),
    Down(Time),
}

/// What becomes of a request on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Good,
    Refused(Answer),
    RequestLost,
    AnswerLost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The epoch on the claim of this number.
    Mark(usize),
    /// What is to be done to the status of the claim of this number.
    Status(usize),
    Note,
    Nominate,
    Lift,
}

/// An intent that is being carried out, at one of its writes.
struct Writing {
    intent: Intent,
    /// Versions that claims have after the writes so far.
    versions: Vec<(Key, String)>,
    step: Step,
    fate: Fate,
    sent: Time,
    arrives: Time,
    answer: Option<Answer>,
    has_arrived: bool,
    /// Nobody waits for the answer any more.
    is_forgotten: bool,
}

/// So long kube-scheduler may still write what it decided on.
pub const HANDOVER: Time = Time::from_secs(30);

fn decider() -> Decider {
    Decider::new(DRIVER, share_ids()).with_handover(HANDOVER)
}

/// A replica.
pub struct Replica {
    pub number: usize,
    watch: usize,
    pub decider: Decider,
    state: State,
    missing: BTreeSet<Kind>,
    /// What it was told truthfully.
    pub view: BTreeMap<(Kind, Key), Arc<Object>>,
    writings: Vec<Writing>,
    /// What a planted bug says was done.
    at_once: Vec<Observation>,
    leads_until: Time,
    /// Whether the loop was told that it leads.
    is_told: bool,
    has_led: bool,
    next_lease: Time,
    next_round: Time,
    is_new: bool,
    /// Pods that this process sent to a node, and has no reason to think are not on their way.
    pub sent: BTreeMap<PodReference, String>,
    /// Claims that were seen with devices: if these are free again, their pods were refused or are gone.
    pub allocated: BTreeSet<Key>,
    /// When it decided anything last.
    pub last_intent: Time,
}

impl Replica {
    pub fn new(around: &mut Surroundings, server: &mut Server, number: usize) -> Self {
        Replica {
            number,
            watch: server.watch(around),
            decider: decider(),
            state: State::Up,
            missing: KINDS.into(),
            view: BTreeMap::new(),
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
        }
    }

    pub fn step(&mut self, around: &mut Surroundings, server: &mut Server, lease: &mut Lease) {
        self.arrive(around, server);
        match self.state {
            State::Paused(until) | State::Down(until) if until > around.now => return,
            State::Down(_) => self.start(around, server),
            State::Paused(_) => self.state = State::Up,
            State::Up if around.is_faulty && around.rng.u32(0..1_500) == 0 => return self.crash(around),
            State::Up if around.is_faulty && around.rng.u32(0..1_500) == 0 => {
                around.note(|| format!("replica {} pauses", self.number));
                self.state = State::Paused(around.now + around.between(1_000, 40_000));
                return;
            }
            State::Up => {}
        }
        self.look(around, server);
        self.answers(around, lease);
        if !matches!(self.state, State::Up) {
            return;
        }
        self.elect(around, lease);
        self.round(around, server, lease);
    }

    fn crash(&mut self, around: &mut Surroundings) {
        around.note(|| format!("replica {} crashes", self.number));
        self.state = State::Down(around.now + around.between(200, 20_000));
        self.leads_until = Time::ZERO;
        self.has_led = false;
        self.sent.clear();
        // What is under way arrives all the same.
        self.writings.retain(|writing| !writing.has_arrived);
        self.writings.iter_mut().for_each(|writing| writing.is_forgotten = true);
    }

    fn start(&mut self, around: &mut Surroundings, server: &mut Server) {
        around.note(|| format!("replica {} starts", self.number));
        self.state = State::Up;
        server.watch_anew(around, self.watch);
        self.decider = decider();
        self.is_told = false;
        self.missing = KINDS.into();
        self.view.clear();
        self.allocated.clear();
        self.at_once.clear();
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
                    let name = (object.kind(), tessera_cluster::key(object.metadata()));
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
                self.observe(around, observation);
            }
            self.is_new = true;
        }
        checks::forget_arrived(self);
    }

    fn observe(&mut self, around: &mut Surroundings, observation: Observation) {
        if let Err(error) = self.decider.observe(around.now, observation) {
            around.violated(|| format!("a good observation was refused: {error}"));
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

    fn round(&mut self, around: &mut Surroundings, server: &mut Server, lease: &Lease) {
        if !self.may_write(around) && std::mem::take(&mut self.is_told) {
            self.decider.follow();
        }
        let is_complete = self.missing.is_empty() || around.has(Bug::DecidesBeforeTheListIsComplete);
        if !is_complete || !self.may_write(around) {
            return;
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
        for intent in self.decider.decide(around.now) {
            around.note(|| format!("replica {}: {intent:?}", self.number));
            self.last_intent = around.now;
            self.take(around, server, lease, intent);
        }
        if self.decider.wake().is_some_and(|wake| wake <= around.now) {
            around.violated(|| "it wants to be called again at once".to_owned());
        }
    }

    fn take(&mut self, around: &mut Surroundings, server: &mut Server, lease: &Lease, intent: Intent) {
        let step = match &intent {
            Intent::Tell { .. } => return,
            Intent::Release { .. } if around.has(Bug::ReleaseDropped) => return,
            Intent::Release { .. } => Step::Lift,
            Intent::Steer { .. } if around.has(Bug::GateLiftedFirst) => Step::Lift,
            Intent::Steer { .. } => Step::Nominate,
            Intent::Allocate { claims, .. } if claims.is_empty() => Step::Nominate,
            Intent::Allocate { .. } => Step::Mark(0),
            Intent::Fence { claims, .. } if around.has(Bug::FenceSkipped) => {
                let claims = claims.iter().map(|claim| claim.key.clone()).collect();
                return self.at_once.push(Observation::ClaimsWritten { claims, is_done: true });
            }
            Intent::Fence { .. } => Step::Mark(0),
            Intent::Clear { .. } => Step::Status(0),
            Intent::NoteRefusals { .. } => Step::Note,
            Intent::ListClaims => return server.list_anew(around, self.watch, Kind::ResourceClaim),
        };
        let is_about =
            |intent: &Intent| !matches!(intent, Intent::NoteRefusals { .. } | Intent::Clear { .. });
        let is_twice = |writing: &Writing| {
            !writing.is_forgotten
                && is_about(&writing.intent)
                && writing.intent.pod().is_some_and(|pod| intent.pod() == Some(pod))
        };
        if is_about(&intent) && self.writings.iter().any(is_twice) {
            around.violated(|| format!("{intent:?} while the one before it is still carried out"));
        }
        checks::intent(around, self, &intent);
        if let Intent::Steer { pod, node, .. } = &intent {
            self.sent.insert(pod.clone(), node.clone());
        }
        self.send(around, lease, intent, step, Vec::new());
    }

    /// Starts a write.
    fn send(
        &mut self,
        around: &mut Surroundings,
        lease: &Lease,
        intent: Intent,
        step: Step,
        versions: Vec<(Key, String)>,
    ) {
        if !self.may_write(around) {
            return self.finish(around, &intent, false, versions);
        }
        if lease.holder != Some(self.number) {
            around.violated(|| format!("replica {} writes while another leads", self.number));
        }
        let mut arrives = around.now + around.between(0, 600);
        let fate = match around.rng.u32(0..100) {
            _ if !around.is_faulty => Fate::Good,
            0..6 => Fate::Refused(Answer::Error),
            6..12 => Fate::Refused(Answer::Conflict),
            12..16 => Fate::RequestLost,
            16..22 => Fate::AnswerLost,
            22..26 => {
                arrives = around.now + around.between(2_000, 15_000);
                Fate::Good
            }
            _ => Fate::Good,
        };
        self.writings.push(Writing {
            intent,
            versions,
            step,
            fate,
            sent: around.now,
            arrives,
            answer: None,
            has_arrived: false,
            is_forgotten: false,
        });
    }

    /// Requests reach the API server, whatever the replica does meanwhile.
    fn arrive(&mut self, around: &mut Surroundings, server: &mut Server) {
        for writing in &mut self.writings {
            if writing.has_arrived || writing.arrives > around.now {
                continue;
            }
            writing.has_arrived = true;
            let answer = match (writing.fate, &writing.intent, writing.step) {
                (Fate::RequestLost, ..) => continue,
                (Fate::Refused(answer), ..) => answer,
                (_, Intent::Steer { pod, node, .. } | Intent::Allocate { pod, node, .. }, Step::Nominate) => {
                    server.nominate(around, pod, node)
                }
                (_, Intent::Fence { claims, epoch }, Step::Mark(number)) => {
                    server.mark(around, &claims[number], epoch)
                }
                (_, Intent::Allocate { claims, epoch, .. }, Step::Mark(number)) => {
                    let claim = &claims[number].claim;
                    let answer = server.mark(around, claim, epoch);
                    let version =
                        server.claim(&claim.key).and_then(|claim| claim.metadata.resource_version.clone());
                    writing.versions.push((claim.key.clone(), version.unwrap_or_default()));
                    answer
                }
                (_, Intent::Allocate { claims, .. }, Step::Status(number)) => {
                    let ClaimAllocation { claim, allocation } = &claims[number];
                    let marked = writing.versions.pop().map(|(_, version)| version).unwrap_or_default();
                    let claim = ClaimReference { resource_version: marked, ..claim.clone() };
                    let answer = server.allocate(around, &claim, allocation);
                    let version =
                        server.claim(&claim.key).and_then(|claim| claim.metadata.resource_version.clone());
                    if answer == Answer::Done {
                        writing.versions.push((claim.key, version.unwrap_or_default()));
                    }
                    answer
                }
                (_, Intent::Clear { claims, .. }, Step::Status(number)) => {
                    server.clear(around, &claims[number])
                }
                (_, Intent::NoteRefusals { pod, nodes }, _) => server.note_refusals(around, pod, nodes),
                (_, intent, _) => {
                    let is_steer = matches!(intent, Intent::Steer { .. });
                    intent.pod().map_or(Answer::Done, |pod| server.lift(around, pod, is_steer))
                }
            };
            if writing.fate != Fate::AnswerLost {
                writing.answer = Some(answer);
            }
        }
        self.writings.retain(|writing| !(writing.is_forgotten && writing.has_arrived));
    }

    /// Takes answers, and goes on to the next write.
    fn answers(&mut self, around: &mut Surroundings, lease: &Lease) {
        let mut number = 0;
        while number < self.writings.len() {
            let writing = &mut self.writings[number];
            let is_late = around.now >= writing.sent + PATIENCE;
            if writing.is_forgotten || (writing.answer.is_none() && !is_late) {
                number += 1;
                continue;
            }
            let (intent, step, answer) = (writing.intent.clone(), writing.step, writing.answer);
            let mut versions = writing.versions.clone();
            if writing.has_arrived {
                self.writings.swap_remove(number);
            } else {
                writing.is_forgotten = true;
            }
            if around.fault(2) {
                // Between two writes, or between a write and its report.
                return self.crash(around);
            }
            let is_gone = answer == Some(Answer::Conflict) && around.has(Bug::ConflictTakenForGone);
            let is_done = answer == Some(Answer::Done) || is_gone;
            let goes_on = (is_done && !is_gone) || around.has(Bug::NominationFailureIgnored);
            if !is_done && matches!(step, Step::Mark(_) | Step::Status(_)) {
                // What was written of the claim before is not its allocation.
                if let (Intent::Allocate { claims, .. }, Step::Mark(number) | Step::Status(number)) =
                    (&intent, step)
                {
                    versions.retain(|(key, _)| *key != claims[number].claim.key);
                }
            }
            let next = match (step, &intent) {
                (Step::Mark(number), Intent::Allocate { .. }) => Some(Step::Status(number)),
                (Step::Mark(number), Intent::Fence { claims, .. }) => {
                    (number + 1 < claims.len()).then_some(Step::Mark(number + 1))
                }
                (Step::Status(number), Intent::Allocate { claims, .. }) if number + 1 < claims.len() => {
                    Some(Step::Mark(number + 1))
                }
                (Step::Status(_), Intent::Allocate { is_gated, .. }) => is_gated.then_some(Step::Nominate),
                (Step::Status(number), Intent::Clear { claims, .. }) => {
                    (number + 1 < claims.len()).then_some(Step::Status(number + 1))
                }
                (Step::Lift, Intent::Steer { .. }) if around.has(Bug::GateLiftedFirst) => {
                    Some(Step::Nominate)
                }
                (Step::Nominate, _) if !around.has(Bug::GateLiftedFirst) => Some(Step::Lift),
                _ => None,
            };
            match next {
                Some(next) if goes_on => self.send(around, lease, intent, next, versions),
                _ => self.finish(around, &intent, is_done, versions),
            }
        }
    }

    fn finish(
        &mut self,
        around: &mut Surroundings,
        intent: &Intent,
        is_done: bool,
        versions: Vec<(Key, String)>,
    ) {
        around.note(|| format!("replica {}: {intent:?} done: {is_done}", self.number));
        self.is_new = true;
        match intent {
            Intent::Fence { claims, .. } | Intent::Clear { claims, .. } => {
                let claims = claims.iter().map(|claim| claim.key.clone()).collect();
                self.observe(around, Observation::ClaimsWritten { claims, is_done });
            }
            Intent::NoteRefusals { .. } | Intent::Tell { .. } | Intent::ListClaims => {}
            Intent::Allocate { pod, .. } | Intent::Steer { pod, .. } | Intent::Release { pod, .. } => {
                if !is_done {
                    checks::failed(self, pod);
                }
                if around.has(Bug::ResultNotReported) {
                    return;
                }
                let is_done = is_done || around.has(Bug::FailureReportedAsDone);
                self.observe(around, Observation::Carried { pod: pod.clone(), is_done, versions });
            }
        }
    }

    /// Whether anything is still on its way to the API server.
    pub fn is_writing(&self) -> bool {
        !self.writings.is_empty()
    }

    /// It comes back if it is away.
    pub fn recover(&mut self) {
        if let State::Paused(until) | State::Down(until) = &mut self.state {
            *until = Time::ZERO;
        }
    }
}
