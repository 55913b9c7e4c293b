//! The controller's handling of answers to its writes: an outcome for each object, and the next write.

use tessera_cluster::Key;
use tessera_decide::{ClaimReference, Intent, Observation, PodReference, Time};

use super::super::{Lease, Replica};
use super::Step;
use crate::simulation::api_server::{Answer, Surroundings};
use crate::simulation::bug::Bug;
use crate::simulation::checks;

/// The longest wait for an answer.
const PATIENCE: Time = Time::from_secs(10);

/// Outcome of a write to one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// No such object: nothing is left to be done.
    Gone,
    /// Nothing was done, and a retry would be refused again; with the refused claim.
    Refused(Option<ClaimReference>),
    /// Nothing was done, or the effect is unknown.
    Unknown,
}

impl Replica {
    /// Handles answers and sends the next writes.
    pub(in crate::simulation::replica) fn answers(&mut self, around: &mut Surroundings, lease: &Lease) {
        let mut number = 0;
        while number < self.writings.len() {
            let writing = &mut self.writings[number];
            let is_late = around.now >= writing.sent + PATIENCE;
            if writing.is_forgotten || (writing.answer.is_none() && !is_late) {
                number += 1;
                continue;
            }
            let (intent, step, answer) = (writing.intent.clone(), writing.step, writing.answer);
            let about = writing.about.clone();
            let mut versions = writing.versions.clone();
            if writing.has_arrived {
                self.writings.swap_remove(number);
            } else {
                writing.is_forgotten = true;
            }
            if around.fault(2) {
                // Between two writes, or between a write and its report.
                return self.crash_by_chance(around);
            }
            let mut outcome = outcome(around, answer, about);
            if let (Intent::Allocate { claims, .. }, Step::Mark(number) | Step::Status(number)) =
                (&intent, step)
                && outcome != Outcome::Done
                && !around.has(Bug::MarkTakenForAllocation)
            {
                if answer == Some(Answer::NotFound) {
                    outcome = Outcome::Unknown;
                }
                // The version after the mark is not the version of an allocation.
                versions.retain(|(key, _)| *key != claims[number].claim.key);
            }
            self.answered(around, lease, intent, step, outcome, versions);
        }
    }

    /// Sends the next write, or reports the outcome of the intent.
    pub(super) fn answered(
        &mut self,
        around: &mut Surroundings,
        lease: &Lease,
        intent: Intent,
        step: Step,
        outcome: Outcome,
        versions: Vec<(Key, String)>,
    ) {
        let goes_on = match &intent {
            Intent::Fence { claims, .. } | Intent::Clear { claims, .. } => {
                let (Step::Mark(number) | Step::Status(number)) = step else { return };
                self.claim_answered(around, &claims[number], &outcome);
                true
            }
            _ => outcome == Outcome::Done || around.has(Bug::NominationFailureIgnored),
        };
        match next(around, &intent, step) {
            Some(next) if goes_on => self.send(around, lease, intent, next, versions),
            _ => self.finish(around, &intent, outcome, versions),
        }
    }

    /// Reports the outcome of the write to one claim, independently of the others.
    fn claim_answered(&mut self, around: &mut Surroundings, claim: &ClaimReference, outcome: &Outcome) {
        around.note(|| format!("replica {}: {claim:?}: {outcome:?}", self.number));
        self.is_new = true;
        let observation = match outcome {
            Outcome::Refused(Some(claim)) => refused(claim, None),
            _ => {
                let is_done = matches!(outcome, Outcome::Done | Outcome::Gone);
                Observation::ClaimsWritten { claims: vec![claim.key.clone()], is_done }
            }
        };
        self.observe(around, observation);
    }

    /// Reports the outcome of an intent.
    fn finish(
        &mut self,
        around: &mut Surroundings,
        intent: &Intent,
        outcome: Outcome,
        versions: Vec<(Key, String)>,
    ) {
        around.note(|| format!("replica {}: {intent:?}: {outcome:?}", self.number));
        self.is_new = true;
        let is_done = matches!(outcome, Outcome::Done | Outcome::Gone);
        match intent {
            Intent::Fence { .. }
            | Intent::Clear { .. }
            | Intent::Note { .. }
            | Intent::Nominate { .. }
            | Intent::Tell { .. }
            | Intent::Answer { .. }
            | Intent::ListClaims => {}
            Intent::Evict { pod, .. } => {
                self.observe(around, Observation::Evicted { pod: pod.clone(), is_done });
            }
            Intent::Allocate { pod, .. } | Intent::Steer { pod, .. } | Intent::Release { pod, .. } => {
                if !is_done {
                    checks::failed(self, pod);
                }
                if around.has(Bug::ResultNotReported) {
                    return;
                }
                if let Outcome::Refused(Some(claim)) = &outcome
                    && !around.has(Bug::FailureReportedAsDone)
                {
                    self.observe(around, refused(claim, Some(pod)));
                }
                if outcome == Outcome::Refused(None) && !around.has(Bug::FailureReportedAsDone) {
                    let (pod, why) = (pod.clone(), "refused".to_owned());
                    self.observe(around, Observation::PodRefused { pod, why });
                }
                let is_done = is_done || around.has(Bug::FailureReportedAsDone);
                self.observe(around, Observation::Carried { pod: pod.clone(), is_done, versions });
            }
        }
    }
}

/// Outcome by the answer; `None` is a timeout.
fn outcome(around: &Surroundings, answer: Option<Answer>, claim: Option<ClaimReference>) -> Outcome {
    match answer {
        Some(Answer::Done) => Outcome::Done,
        Some(Answer::Conflict) if around.has(Bug::ConflictTakenForGone) => Outcome::Gone,
        Some(Answer::NotFound) => Outcome::Gone,
        Some(Answer::Invalid) if !around.has(Bug::RefusalNotTold) => Outcome::Refused(claim),
        _ => Outcome::Unknown,
    }
}

fn refused(claim: &ClaimReference, pod: Option<&PodReference>) -> Observation {
    Observation::ClaimRefused { claim: claim.clone(), pod: pod.cloned(), why: "refused".to_owned() }
}

/// The write that follows a successful one.
fn next(around: &Surroundings, intent: &Intent, step: Step) -> Option<Step> {
    match (step, intent) {
        (Step::Mark(number), Intent::Allocate { .. }) => Some(Step::Status(number)),
        (Step::Mark(number), Intent::Fence { claims, .. }) => {
            (number + 1 < claims.len()).then_some(Step::Mark(number + 1))
        }
        (Step::Status(number), Intent::Allocate { claims, .. }) if number + 1 < claims.len() => {
            Some(Step::Mark(number + 1))
        }
        (Step::Status(_), Intent::Allocate { lifts_gate, .. }) => {
            let lifts_gate = *lifts_gate || around.has(Bug::GateOfGangLiftedAtOnce);
            lifts_gate.then_some(Step::Nominate)
        }
        (Step::Status(number), Intent::Clear { claims, .. }) => {
            (number + 1 < claims.len()).then_some(Step::Status(number + 1))
        }
        (Step::Lift, Intent::Steer { .. }) if around.has(Bug::GateLiftedFirst) => Some(Step::Nominate),
        (Step::Nominate, _) if !around.has(Bug::GateLiftedFirst) => Some(Step::Lift),
        _ => None,
    }
}
