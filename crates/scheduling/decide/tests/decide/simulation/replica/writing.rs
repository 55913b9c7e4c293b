//! Carries out the intents of a replica, write by write. Each request or answer may be refused, late or lost.

mod answers;

use tessera_api::managed::{NOMINATION_ANNOTATION, Nomination};
use tessera_cluster::{Key, Kind, Object};
use tessera_decide::{ClaimAllocation, ClaimReference, Intent, Observation, PodReference, Time, Topic};

use super::super::api_server::{Answer, Server, Surroundings};
use super::super::bug::Bug;
use super::super::checks;
use super::super::checks::on_the_way::Arrived;
use super::super::faults::{Fault, Incident};
use super::super::oracle::{self, DeviceId};
use super::{Lease, Replica, State};
use answers::Outcome;

/// Fate of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Good,
    Refused(Answer),
    /// Done, but answered like this.
    DoneAnd(Answer),
    RequestLost,
    AnswerLost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Write the epoch on the claim of this index.
    Mark(usize),
    /// Write or clear the allocation of the claim of this index.
    Status(usize),
    Note,
    Evict,
    Nominate,
    Lift,
}

/// An intent in progress, at one of its writes.
pub(super) struct Writing {
    intent: Intent,
    /// Versions of claims after the writes so far.
    versions: Vec<(Key, String)>,
    step: Step,
    fate: Fate,
    /// The claim, with the version sent in the write.
    about: Option<ClaimReference>,
    /// Incident at the replica on arrival of the write.
    then: Option<Incident>,
    sent: Time,
    arrives: Time,
    answer: Option<Answer>,
    pub has_arrived: bool,
    /// Nobody waits for the answer any more.
    pub is_forgotten: bool,
    /// The sending process crashed: the next one does not count this write, and fences the claims.
    pub is_of_earlier_process: bool,
}

/// Random fate of a request, and its delay if longer than usual.
fn chance(around: &mut Surroundings) -> (Fate, Option<Time>) {
    if !around.is_faulty {
        return (Fate::Good, None);
    }
    let fate = match around.rng.u32(0..100) {
        0..6 => Fate::Refused(Answer::Error),
        6..12 => Fate::Refused(Answer::Conflict),
        12..16 => Fate::RequestLost,
        16..22 => Fate::AnswerLost,
        22..26 => return (Fate::Good, Some(around.between(2_000, 15_000))),
        _ => Fate::Good,
    };
    (fate, None)
}

impl Replica {
    pub(super) fn take(
        &mut self,
        around: &mut Surroundings,
        server: &mut Server,
        lease: &Lease,
        intent: Intent,
    ) {
        let step = match &intent {
            Intent::Tell { pod, topic: Topic::Idle, .. } => return checks::idle::told(around, pod),
            // There is no Kueue.
            Intent::Tell { .. } | Intent::Answer { .. } => return,
            Intent::Evict { pod, .. } if around.has(Bug::EvictionDropped) => {
                return self.at_once.push(Observation::Evicted { pod: pod.clone(), is_done: true });
            }
            Intent::Evict { .. } => Step::Evict,
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
            Intent::Fence { claims, epoch } if around.has(Bug::SettleSkipped) && epoch.contains('#') => {
                let claims = claims.iter().map(|claim| claim.key.clone()).collect();
                return self.at_once.push(Observation::ClaimsWritten { claims, is_done: true });
            }
            Intent::Fence { .. } => Step::Mark(0),
            Intent::Clear { .. } => Step::Status(0),
            Intent::Nominate { pod, nomination } => {
                if around.has(Bug::NominationTakenAsSeen) {
                    self.see_at_once(pod, nomination.as_ref());
                }
                Step::Note
            }
            Intent::Note { .. } => Step::Note,
            Intent::ListClaims if around.has(Bug::ListNotFresh) => {
                return self.at_once.push(Observation::ClaimsListed { asked_at: around.now });
            }
            Intent::ListClaims => return server.list_anew(around, self.watch, Kind::ResourceClaim),
        };
        let is_about = |intent: &Intent| {
            !matches!(intent, Intent::Note { .. } | Intent::Nominate { .. } | Intent::Clear { .. })
        };
        let is_twice = |writing: &Writing| {
            !writing.is_forgotten
                && is_about(&writing.intent)
                && writing.intent.pod().is_some_and(|pod| intent.pod() == Some(pod))
        };
        if is_about(&intent) && self.writings.iter().any(is_twice) {
            around.violated(|| format!("{intent:?} while the one before it is still carried out"));
        }
        checks::intent(around, self, server, &intent);
        if let Some(pod) = intent.pod() {
            self.acted.insert(pod.key.clone(), around.now);
        }
        if let Intent::Steer { pod, node, .. } = &intent {
            self.sent.insert(pod.clone(), node.clone());
        }
        self.send(around, lease, intent, step, Vec::new());
    }

    /// Makes the loop observe the nomination before the write.
    fn see_at_once(&mut self, pod: &PodReference, nomination: Option<&Nomination>) {
        let Some(Object::Pod(found)) = self.view.get(&(Kind::Pod, pod.key.clone())).map(AsRef::as_ref) else {
            return;
        };
        let mut found = found.clone();
        let text = nomination.map(|nomination| (NOMINATION_ANNOTATION.to_owned(), nomination.encode()));
        found.metadata.annotations.get_or_insert_default().extend(text);
        self.at_once.push(Observation::Applied(Box::new(found.into())));
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
            return self.answered(around, lease, intent, step, Outcome::Unknown, versions);
        }
        if lease.holder != Some(self.number) {
            around.violated(|| format!("replica {} writes while another leads", self.number));
        }
        let takes = around.between(0, 600);
        let (fate, late) = chance(around);
        let mut writing = Writing {
            intent,
            versions,
            step,
            fate,
            about: None,
            then: None,
            sent: around.now,
            arrives: around.now + late.unwrap_or(takes),
            answer: None,
            has_arrived: false,
            is_forgotten: false,
            is_of_earlier_process: false,
        };
        let mut incident = None;
        if let Some(plan) = &mut around.plan {
            let faults = plan.next();
            let number = plan.writes;
            for fault in &faults {
                writing.fate = match fault {
                    Fault::Conflict => Fate::Refused(Answer::Conflict),
                    Fault::Error => Fate::Refused(Answer::Error),
                    Fault::DoneAndError => Fate::DoneAnd(Answer::Error),
                    Fault::RequestLost => Fate::RequestLost,
                    Fault::AnswerLost => Fate::AnswerLost,
                    _ => writing.fate,
                };
                writing.arrives += fault.delay();
                writing.then = fault.when_arrived().or(writing.then);
                incident = fault.when_sent().or(incident);
            }
            let (intent, step) = (&writing.intent, writing.step);
            around.note(|| format!("write {number}: {step:?} of {intent:?} {faults:?}"));
        }
        // The replica is paused already, and was about to send this write, too.
        if let State::Paused(until) = self.state {
            writing.arrives = writing.arrives.max(until + takes);
        }
        self.writings.push(writing);
        if let Some(incident) = incident {
            self.meet(around, incident);
        }
    }

    /// Delivers requests to the API server, whatever the state of the replica.
    pub(super) fn arrive(&mut self, around: &mut Surroundings, server: &mut Server) {
        let mut incident = None;
        for writing in &mut self.writings {
            if writing.has_arrived || writing.arrives > around.now {
                continue;
            }
            writing.has_arrived = true;
            incident = writing.then.filter(|_| !writing.is_forgotten).or(incident);
            let answer = match (writing.fate, &writing.intent, writing.step) {
                (Fate::RequestLost, ..) => continue,
                (Fate::Refused(answer), ..) => answer,
                (_, Intent::Steer { pod, node, .. } | Intent::Allocate { pod, node, .. }, Step::Nominate) => {
                    server.nominate(around, pod, node)
                }
                (_, Intent::Fence { claims, epoch }, Step::Mark(number)) => {
                    writing.about = Some(claims[number].clone());
                    server.mark(around, &claims[number], epoch)
                }
                (_, Intent::Allocate { claims, epoch, .. }, Step::Mark(number)) => {
                    let claim = &claims[number].claim;
                    writing.about = Some(claim.clone());
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
                    writing.about = Some(claim.clone());
                    let answer = server.allocate(around, &claim, allocation);
                    let version =
                        server.claim(&claim.key).and_then(|claim| claim.metadata.resource_version.clone());
                    // A claim of an earlier process is fenced or seen, and not counted before.
                    if answer == Answer::Done && !writing.is_of_earlier_process {
                        let version = version.unwrap_or_default();
                        self.on_the_way.arrived.push(Arrived {
                            claim: claim.key.clone(),
                            uid: claim.uid,
                            version: version.parse().expect("versions here are numbers"),
                            devices: oracle::devices_in(allocation).collect(),
                        });
                        writing.versions.push((claim.key, version));
                    }
                    answer
                }
                (_, Intent::Clear { claims, .. }, Step::Status(number)) => {
                    writing.about = Some(claims[number].clone());
                    server.clear(around, &claims[number])
                }
                (_, Intent::Evict { pod, why }, _) => {
                    let answer = server.evict(around, pod);
                    if answer == Answer::Kept {
                        checks::gangs::kept(around, why);
                    }
                    answer
                }
                (_, Intent::Nominate { pod, nomination }, _) => {
                    server.note_nomination(around, pod, nomination.as_ref())
                }
                (_, Intent::Note { pod, nodes, formed, idle_evicted, .. }, _) => {
                    server.note(around, pod, nodes, (*formed, idle_evicted.as_ref()))
                }
                (_, intent, _) => {
                    let is_steer = matches!(intent, Intent::Steer { .. });
                    let formed = match &intent {
                        Intent::Allocate { formed, .. } => *formed,
                        _ => None,
                    };
                    intent.pod().map_or(Answer::Done, |pod| server.lift(around, pod, is_steer, formed))
                }
            };
            writing.answer = match writing.fate {
                Fate::AnswerLost => None,
                Fate::DoneAnd(answer) => Some(answer),
                _ => Some(answer),
            };
        }
        if let Some(incident) = incident {
            self.meet(around, incident);
        }
        self.writings.retain(|writing| !(writing.is_forgotten && writing.has_arrived));
    }

    /// Allocations of this process not done yet but still possible: each would succeed on arrival now.
    pub fn allocations_under_way(&self, server: &Server) -> Vec<(Key, Vec<DeviceId>)> {
        let mut all = Vec::new();
        for writing in self.writings.iter().filter(|writing| !writing.is_of_earlier_process) {
            let (Intent::Allocate { claims, .. }, Step::Mark(first) | Step::Status(first)) =
                (&writing.intent, writing.step)
            else {
                continue;
            };
            let is_status = matches!(writing.step, Step::Status(_));
            // No write follows a forgotten one: nobody handles its answer.
            let end = if writing.is_forgotten { first + usize::from(is_status) } else { claims.len() };
            for (number, ClaimAllocation { claim, allocation }) in
                claims.iter().enumerate().take(end).skip(first)
            {
                let is_this = number == first;
                let marked =
                    writing.versions.last().filter(|_| is_this && (is_status || writing.has_arrived));
                let version = marked.map_or(&claim.resource_version, |(_, version)| version);
                // No write follows a mark that failed or got no answer.
                if is_this && !is_status && writing.has_arrived && writing.answer != Some(Answer::Done) {
                    break;
                }
                let is_open = server.claim(&claim.key).is_some_and(|found| {
                    found.metadata.uid.as_ref() == Some(&claim.uid)
                        && found.metadata.resource_version.as_ref() == Some(version)
                        && oracle::allocation(found).is_none()
                });
                if !(is_open || is_this && is_status && writing.has_arrived) {
                    break;
                }
                if is_open {
                    all.push((claim.key.clone(), oracle::devices_in(allocation).collect()));
                }
            }
        }
        all
    }

    /// Whether any write is still in flight.
    pub fn is_writing(&self) -> bool {
        !self.writings.is_empty()
    }
}
