//! Exponential backoff with jitter.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// A watch of at least this length counts as a success: the next failure starts again with the first delay.
const HELD: Duration = Duration::from_secs(10);

/// Delays doubling from a first to a longest one. Each is drawn from its upper half, so that the plugins of a cluster
/// don't all reconnect at once after an outage of the API server.
#[derive(Debug)]
pub struct Backoff {
    builder: ExponentialBuilder,
    delays: ExponentialBackoff,
    attempts: u32,
}

impl Backoff {
    /// Delays doubling from `first` to `longest`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        // The crate's jitter adds up to as much again.
        let builder = ExponentialBuilder::new()
            .with_min_delay(first / 2)
            .with_max_delay(longest / 2)
            .without_max_times()
            .with_jitter();
        Self { builder, delays: builder.build(), attempts: 0 }
    }

    /// Number of consecutive failures.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The next delay.
    pub fn delay(&mut self) -> Duration {
        self.attempts = self.attempts.saturating_add(1);
        self.delays.next().unwrap_or_default()
    }

    /// Waits for the next delay.
    pub async fn sleep(&mut self) {
        tokio::time::sleep(self.delay()).await;
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.delays = self.builder.build();
        self.attempts = 0;
    }
}

impl Default for Backoff {
    /// From 100 ms to 30 s, for requests to the API server.
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(30))
    }
}

/// Backoff of a watch, which starts over when the watch has lasted for a while. Not with each event, as in kube: the
/// first event of a watch (`Init`) comes before any request to the server.
#[derive(Debug, Default)]
pub struct WatchBackoff {
    backoff: Backoff,
    /// When the watch was last started.
    begun: Option<Instant>,
}

impl WatchBackoff {
    fn delay(&mut self, now: Instant) -> Duration {
        if self.begun.is_some_and(|begun| now.saturating_duration_since(begun) > HELD) {
            self.backoff.reset();
        }
        let delay = self.backoff.delay();
        self.begun = Some(now + delay);
        delay
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.delay(Instant::now()))
    }
}

impl kube::runtime::utils::Backoff for WatchBackoff {
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(30);

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
    fn a_watch_begins_anew_after_it_held_and_not_because_it_began() {
        use kube::runtime::utils::Backoff as _;
        let mut backoff = WatchBackoff::default();
        let mut now = Instant::now();
        for _ in 0..10 {
            now += backoff.delay(now);
            backoff.reset();
        }
        let delay = backoff.delay(now);
        assert!(delay >= LONGEST / 2);
        assert!(backoff.delay(now + delay + HELD + Duration::from_secs(1)) <= FIRST);
    }
}
