//! The time of the decision loop.

use std::time::{Duration, Instant, SystemTime};

/// Time since the Unix epoch, as this machine's clock said it at the start, and never back: what happens to that clock later
/// changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    since_epoch: Duration,
}

impl Clock {
    /// Starts now.
    #[must_use]
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Clock { started: Instant::now(), since_epoch }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.since_epoch + self.started.elapsed()
    }
}
