//! Exponential back-off with jitter.

use std::time::{Duration, Instant};

/// First delay.
const FIRST: Duration = Duration::from_millis(100);
/// Longest delay.
const LONGEST: Duration = Duration::from_secs(30);
/// After how much time without a failure a watch begins anew with the first delay.
const QUIET: Duration = Duration::from_secs(60);

/// Delays that double from 100 ms to 30 s. Each is drawn from its upper half, so that the plugins of a cluster whose API
/// server was away don't come back all at once.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// Failures in a row so far.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The next delay.
    pub fn delay(&mut self) -> Duration {
        let full = FIRST.saturating_mul(2_u32.saturating_pow(self.attempts)).min(LONGEST);
        self.attempts = self.attempts.saturating_add(1);
        full.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Begins anew after a success.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }
}

/// Back-off of a watch, which begins anew after a minute without failures. Not with each event, as kube would have it:
/// the watch says that it begins (`Init`) before it has asked the server anything.
#[derive(Clone, Debug, Default)]
pub struct WatchBackoff {
    backoff: Backoff,
    failed: Option<Instant>,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if self.failed.replace(now).is_some_and(|before| now - before > LONGEST + QUIET) {
            self.backoff.reset();
        }
        Some(self.backoff.delay())
    }
}

impl kube::runtime::utils::Backoff for WatchBackoff {
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_half_a_minute_and_begins_anew() {
        let mut backoff = Backoff::default();
        let mut full = FIRST;
        for _ in 0..100 {
            let delay = backoff.delay();
            assert!(delay >= full / 2 && delay <= full, "{delay:?} of {full:?}");
            full = (full * 2).min(LONGEST);
        }
        backoff.reset();
        assert!(backoff.delay() <= FIRST);
    }

    #[test]
    fn a_watch_that_only_begins_does_not_reset() {
        use kube::runtime::utils::Backoff as _;
        let mut backoff = WatchBackoff::default();
        for _ in 0..10 {
            backoff.next();
            backoff.reset();
        }
        assert!(backoff.next().unwrap() >= LONGEST / 2);
    }
}
