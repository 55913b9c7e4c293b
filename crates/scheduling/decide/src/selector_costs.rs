//! Budget for expensive selectors: evaluation is spread over rounds, so other pods are not delayed.
//!
//! Measured in Kubernetes' CEL cost units instead of time, because the loop has no clock. Answers are cached, so each round makes
//! progress. Pods waiting for answers block nobody.

use tessera_allocator::claim::Claim;
use tessera_allocator::selectors::Unanswered;
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use crate::round::Round;
use crate::world::World;

/// Cost per round for the claims of one shape.
const OF_KIND: u64 = 1_500_000;

/// Delay before evaluation continues.
pub(crate) const PAUSE: Time = Time::from_millis(100);

/// Longest part of an expression shown, in characters.
const LONGEST: usize = 120;

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

/// Why the pod's claims cannot be allocated yet; `None` once no remaining evaluation is expensive.
pub(crate) fn unanswered(world: &mut World, round: &mut Round, demand: &Demand) -> Option<String> {
    if let Some(why) = round.unanswered(demand.claims_shape) {
        return Some(why.to_owned());
    }
    let why = unanswered_of(world, round, demand.claims())?;
    round.set_unanswered(demand.claims_shape, &why);
    Some(why)
}

/// As [`unanswered`].
pub(crate) fn unanswered_of(world: &mut World, round: &mut Round, claims: &[Claim]) -> Option<String> {
    let budget = round.selector_cost.min(OF_KIND);
    let mut left = budget;
    let answered = world.cluster.answer_ahead(claims, &mut left, &mut world.asker);
    round.selector_cost -= budget - left;
    answered.err().map(|unanswered| sentence(&unanswered))
}

/// Whether any evaluation for the claims is still expensive. Itself costs nothing.
pub(crate) fn is_unanswered(world: &mut World, demand: &Demand) -> bool {
    world.cluster.answer_ahead(demand.claims(), &mut 0, &mut world.asker).is_err()
}
