//! Faults injected into the functions of the library.

use std::time::{Duration, Instant};

use super::session::Session;
use crate::failure::Failure;
use crate::state::{FaultEffect, Moment, State};

/// How often a delayed call checks whether its fault was removed.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// Applies the faults for a call: all delays, then the first error.
pub fn suffer(
    session: &Session,
    state: &State,
    function: &str,
    card: Option<u32>,
    moment: Moment,
) -> Result<(), Failure> {
    let meets = |fault: &crate::state::Fault| fault.moment == moment && fault.meets(function, card);
    if !state.faults.iter().any(meets) {
        return Ok(());
    }
    let counted = state.faults.iter().any(|fault| fault.remaining.is_some() && meets(fault));
    let effects: Vec<FaultEffect> = if counted {
        // The count is shared by all processes, so the lock covers the decision whether a fault still applies.
        session.store.update(|state| {
            let mut effects = Vec::new();
            for fault in state.faults.iter_mut().filter(|fault| meets(fault)) {
                fault.remaining = fault.remaining.map(|remaining| remaining - 1);
                effects.push(fault.effect);
            }
            state.faults.retain(|fault| fault.remaining != Some(0));
            Ok::<_, Failure>(effects)
        })?
    } else {
        state.faults.iter().filter(|fault| meets(fault)).map(|fault| fault.effect).collect()
    };
    for effect in &effects {
        if let FaultEffect::Delay(milliseconds) = effect {
            let until = Instant::now() + Duration::from_millis(*milliseconds);
            // A hanging call continues when its fault is removed.
            while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
                && (counted || session.snapshot().state.faults.iter().any(meets))
            {
                std::thread::sleep(left.min(LONGEST_SLEEP));
            }
        }
    }
    match effects
        .iter()
        .find_map(|effect| if let FaultEffect::Error(code) = effect { Some(*code) } else { None })
    {
        Some(code) => Err(Failure(code)),
        None => Ok(()),
    }
}
