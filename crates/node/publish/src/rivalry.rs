//! Limits how often slices under repeated foreign change are restored.

use std::time::Duration;

use tokio::time::Instant;

/// Number of repairs without a delay. A restarting kubelet deletes slices one after another, so several may be needed.
const BURST: u32 = 8;
/// After this time without a foreign change, the next one is repaired at once again. Longer than the longest delay, so
/// that an ongoing dispute is recognised.
const QUIET: Duration = Duration::from_secs(150);
/// The first delay of a repair beyond the burst.
const FIRST: Duration = Duration::from_secs(1);
/// The longest delay.
const LONGEST: Duration = Duration::from_secs(60);

/// Decides when to undo a foreign change: at once, unless such changes keep happening.
#[derive(Debug, Default)]
pub struct Rivalry {
    repairs: u32,
    last: Option<Instant>,
}

impl Rivalry {
    /// Notes a foreign change; returns the delay before the repair.
    pub fn repair_after(&mut self, now: Instant) -> Duration {
        if self.last.is_none_or(|last| now.saturating_duration_since(last) >= QUIET) {
            self.repairs = 0;
        }
        self.last = Some(now);
        self.repairs = self.repairs.saturating_add(1);
        match self.repairs.checked_sub(BURST + 1) {
            None => Duration::ZERO,
            Some(beyond) => FIRST.saturating_mul(2_u32.saturating_pow(beyond)).min(LONGEST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dispute_slows_down_to_one_write_a_minute_and_peace_forgets_it() {
        let mut rivalry = Rivalry::default();
        let begin = Instant::now();
        let mut now = begin;
        let mut repairs = 0;
        while now < begin + Duration::from_secs(3600) {
            // Somebody who changes the slices again one millisecond after each repair.
            now += rivalry.repair_after(now) + Duration::from_millis(1);
            repairs += 1;
        }
        assert!((60..90).contains(&repairs), "{repairs} repairs in an hour");
        assert_eq!(rivalry.repair_after(now + QUIET), Duration::ZERO);
    }

    #[test]
    fn the_restart_of_a_kubelet_is_repaired_at_once() {
        let mut rivalry = Rivalry::default();
        let now = Instant::now();
        for _ in 0..BURST {
            assert_eq!(rivalry.repair_after(now), Duration::ZERO);
        }
        assert!(rivalry.repair_after(now) > Duration::ZERO);
    }
}
