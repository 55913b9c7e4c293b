//! Exponential back-off with jitter.

use std::time::Duration;

/// First delay.
const FIRST: Duration = Duration::from_millis(100);
/// Longest delay.
const LONGEST: Duration = Duration::from_secs(30);

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

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.delay())
    }
}

impl kube::runtime::utils::Backoff for Backoff {
    fn reset(&mut self) {
        self.attempts = 0;
    }
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
}
