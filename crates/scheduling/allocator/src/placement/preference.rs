//! Settles the alternatives of `firstAvailable` on the first combination with any assignment, in upstream's order of
//! trying.
//!
//! One request after the other, with the requests before settled: an alternative is taken if any assignment has
//! it. So the number of searches is at most the number of alternatives, not of combinations.

use crate::error::AllocateError;
use crate::upstream::{Limits, PATIENCE, Search};
use crate::validity::{Assignment, Picked};

/// The settled combination of alternatives.
pub(super) struct Settled {
    /// An assignment: the first in published order, in an order valid for taking.
    pub picked: Vec<Picked>,
    /// Whether no earlier combination has an assignment; otherwise the steps were used up before knowing.
    pub is_certain: bool,
    pub steps: u64,
}

/// Result of one search.
enum Answer {
    Found { picked: Vec<Picked>, chosen: Vec<(u32, u32, u32)> },
    None,
    TooLong,
}

/// Narrows each list of alternatives to one; `None` if no combination has an assignment.
///
/// # Errors
/// See [`AllocateError`].
pub(super) fn settle<'a, 's>(
    assignment: Assignment<'a, 's>,
    step_limit: u64,
) -> Result<(Assignment<'a, 's>, Option<Settled>), AllocateError> {
    let mut steps = 0;
    let (mut assignment, answer) = search(assignment, step_limit, &mut steps)?;
    let (mut picked, mut chosen) = match answer {
        Answer::Found { picked, chosen } => (picked, chosen),
        Answer::None => return Ok((assignment, None)),
        Answer::TooLong => return Err(AllocateError::TooLong(steps)),
    };
    let mut is_certain = true;
    for claim in 0..assignment.slots_of.len() {
        for request in 0..assignment.slots_of[claim].len() {
            let (first, _) = assignment.slots_of[claim][request];
            let place = (claim as u32, request as u32);
            let known = alternative_of(&chosen, place);
            let mut settled = known;
            for earlier in 0..known {
                assignment.slots_of[claim][request] = (first + earlier, 1);
                // Half of the remaining steps, to leave some for finding the least cost.
                let limit = steps + (step_limit - steps.min(step_limit)) / 2;
                let answer;
                (assignment, answer) = search(assignment, limit, &mut steps)?;
                match answer {
                    Answer::Found { picked: better, chosen: of_better } => {
                        (picked, chosen, settled) = (better, of_better, earlier);
                        break;
                    }
                    Answer::None => {}
                    Answer::TooLong => is_certain = false,
                }
            }
            assignment.slots_of[claim][request] = (first + settled, 1);
        }
    }
    Ok((assignment, Some(Settled { picked, is_certain, steps })))
}

fn alternative_of(chosen: &[(u32, u32, u32)], place: (u32, u32)) -> u32 {
    let of = chosen.iter().find(|(claim, request, _)| (*claim, *request) == place);
    of.map_or(0, |(.., alternative)| *alternative)
}

/// Any assignment with the remaining alternatives.
fn search<'a, 's>(
    assignment: Assignment<'a, 's>,
    step_limit: u64,
    steps: &mut u64,
) -> Result<(Assignment<'a, 's>, Answer), AllocateError> {
    let limits = Limits { effort: step_limit.saturating_sub(*steps), patience: PATIENCE };
    let mut search = Search::new(assignment, limits);
    let answer = match search.run() {
        Ok(true) => Answer::Found {
            picked: search.assignment.picked.clone(),
            chosen: search.assignment.chosen.clone(),
        },
        Ok(false) => Answer::None,
        Err(AllocateError::TooLong(_)) => Answer::TooLong,
        Err(error) => return Err(error),
    };
    let (assignment, tried) = search.release();
    *steps += tried;
    Ok((assignment, answer))
}
