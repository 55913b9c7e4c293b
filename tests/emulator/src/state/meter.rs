//! A card's work so far: its load summed over time, the base of energy, traffic and the shares of time in
//! GPM.
//!
//! Between two changes of the state a card's load is constant. So the sum is updated when the load changes, and at
//! every query.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CardState, State};

/// Sums over time, up to a moment. Times are microseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meter {
    /// Start of counting; 0 for the machine's creation.
    pub since: u64,
    /// Up to when the sums go; 0 where nothing was added yet.
    pub until: u64,
    /// Busy percent times microseconds.
    pub busy: u64,
    /// The part during which a tester had set the power.
    pub busy_at_set_power: u64,
    /// Microseconds during which a tester had set the power.
    pub set_power_time: u64,
    /// Milliwatts set by a tester, times microseconds.
    pub set_power: u64,
    /// As `busy`, of each GPU instance, by its id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub instances: BTreeMap<u32, u64>,
}

impl Meter {
    /// Counters starting now.
    pub fn starting(now: u64) -> Self {
        Meter { since: now, until: now, ..Meter::default() }
    }

    /// Whether nothing has ever run on the machine.
    pub fn is_unused(&self) -> bool {
        *self == Meter::default()
    }

    /// The counters with the card's load until `now`.
    #[must_use]
    pub fn at(&self, card: &CardState, now: u64) -> Self {
        let mut meter = self.clone();
        let elapsed = if self.until == 0 { 0 } else { now.saturating_sub(self.until) };
        let busy = u64::from(card.busy_percent()) * elapsed;
        meter.until = now.max(self.until);
        meter.busy += busy;
        if let Some(milliwatts) = card.power_usage_milliwatts {
            meter.busy_at_set_power += busy;
            meter.set_power_time += elapsed;
            meter.set_power += u64::from(milliwatts) * elapsed;
        }
        for (instance, percent) in card.busy_instances() {
            *meter.instances.entry(instance).or_default() += u64::from(percent) * elapsed;
        }
        meter
    }
}

/// Adds up the work of cards before a change of their load.
pub(super) fn advance(before: &State, after: &mut State, now: u64) {
    for (before, after) in before.cards.iter().zip(&mut after.cards) {
        let load =
            |card: &CardState| (card.busy_percent(), card.power_usage_milliwatts, card.busy_instances());
        if load(before) != load(after) && before.meter == after.meter {
            after.meter = before.meter.at(before, now);
        }
    }
}

/// Microseconds since 1970.
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Process, ProcessKind};

    const SECOND: u64 = 1_000_000;

    fn busy(percent: u32) -> State {
        let mut state = State::new(1);
        let process = Process { gpu_instance: Some(3), ..Process::new(7, 0, ProcessKind::Compute) };
        state.cards[0].processes = vec![Process { busy_percent: percent, ..process }];
        state
    }

    #[test]
    fn what_was_done_is_added_up_when_the_load_changes() {
        let idle = State::new(1);
        let mut one = busy(40);
        advance(&idle, &mut one, 10 * SECOND);
        assert_eq!((one.cards[0].meter.busy, one.cards[0].meter.until), (0, 10 * SECOND));
        let mut two = State { cards: one.cards.clone(), ..busy(0) };
        two.cards[0].processes.clear();
        two.cards[0].power_usage_milliwatts = Some(5);
        advance(&one, &mut two, 12 * SECOND);
        let meter = &two.cards[0].meter;
        assert_eq!((meter.busy, meter.instances[&3]), (80 * SECOND, 80 * SECOND));
        let later = meter.at(&two.cards[0], 13 * SECOND);
        assert_eq!((later.busy, later.set_power, later.set_power_time), (80 * SECOND, 5 * SECOND, SECOND));
        assert_eq!(later.at(&two.cards[0], 11 * SECOND).until, 13 * SECOND, "a clock that goes back");
    }

    #[test]
    fn one_that_begins_anew_has_nothing_of_before() {
        let one = busy(100);
        let mut fresh = State::new(1);
        fresh.cards[0].meter = Meter::starting(SECOND);
        advance(&one, &mut fresh, 9 * SECOND);
        assert_eq!(fresh.cards[0].meter, Meter::starting(SECOND));
    }
}
