//! Selectors that cost much to evaluate: some of it in each round, so that nobody else waits for them.
//!
//! Counted in cost as Kubernetes counts it, and not in time: the loop has no clock. Answers are kept, so
//! that each round gets on; who waits for answers keeps nobody from anything.

use tessera_allocator::claim::Claim;
use tessera_allocator::selectors::Unanswered;
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use super::Decider;

/// Cost that a round has for the claims of pods of one kind.
const OF_KIND: u64 = 10_000_000;

/// Cost that a round has for all claims.
pub(super) const OF_ROUND: u64 = 50_000_000;

/// So long later what is left is gone on with.
pub(super) const PAUSE: Time = Time::from_millis(100);

/// Longest part of an expression that is told, in characters.
const LONGEST: usize = 120;

impl Decider {
    /// Why it is too early to ask what the pod's claims would get; `None` where no answer costs much any more.
    pub(super) fn unanswered(&mut self, demand: &Demand) -> Option<String> {
        if let Some(why) = self.round.unanswered(demand.claims_shape) {
            return Some(why.to_owned());
        }
        let why = self.unanswered_of(demand.claims())?;
        self.round.set_unanswered(demand.claims_shape, &why);
        Some(why)
    }

    /// As [`Self::unanswered`].
    pub(super) fn unanswered_of(&mut self, claims: &[Claim]) -> Option<String> {
        let budget = self.round.selector_cost.min(OF_KIND);
        let mut left = budget;
        let answered = self.cluster.answer_ahead(claims, &mut left, &mut self.asker);
        self.round.selector_cost -= budget - left;
        answered.err().map(|unanswered| sentence(&unanswered))
    }

    /// Whether any answer about what the claims would get costs much. Costs nothing itself.
    pub(super) fn is_unanswered(&mut self, demand: &Demand) -> bool {
        self.cluster.answer_ahead(demand.claims(), &mut 0, &mut self.asker).is_err()
    }
}

fn sentence(unanswered: &Unanswered) -> String {
    let Unanswered { done, devices, expression, cost } = unanswered;
    let mut short: String = expression.split_whitespace().collect::<Vec<_>>().join(" ");
    if short.chars().count() > LONGEST {
        short = short.chars().take(LONGEST).chain(['…']).collect();
    }
    format!(
        "its selectors cost so much that some of their answers are found at a time, for {done} of {devices} devices so far: others \
         pass it; the costliest took {cost} of Kubernetes' 1000000 for a device: {short}"
    )
}
