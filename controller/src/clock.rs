//! The clock of the decision loop.

use std::time::{Duration, Instant, SystemTime};

/// Monotonic time since the Unix epoch, from the machine's clock at the start. Later changes of the machine's clock have no effect.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    since_epoch: Duration,
}

impl Clock {
    /// Starts the clock.
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
