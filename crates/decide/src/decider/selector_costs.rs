//! Budget for expensive selectors: evaluation is spread over rounds, so other pods are not delayed.
//!
//! Measured in Kubernetes' CEL cost units instead of time, because the loop has no clock. Answers are cached, so each round makes
//! progress. Pods waiting for answers block nobody.

use tessera_allocator::claim::Claim;
use tessera_allocator::selectors::Unanswered;
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use super::Decider;

/// Cost per round for the claims of one shape.
const OF_KIND: u64 = 10_000_000;

/// Cost per round for all claims.
pub(super) const OF_ROUND: u64 = 50_000_000;

/// Delay before evaluation continues.
pub(super) const PAUSE: Time = Time::from_millis(100);

/// Longest part of an expression shown, in characters.
const LONGEST: usize = 120;

impl Decider {
    /// Why the pod's claims cannot be allocated yet; `None` once no remaining evaluation is expensive.
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

    /// Whether any evaluation for the claims is still expensive. Itself costs nothing.
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
