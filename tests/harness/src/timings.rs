use std::time::{Duration, Instant};

use crate::progress::{Event, Progress};

/// The end of each phase, counted from the start.
#[derive(Clone, Debug, Default)]
pub struct Timings {
    phases: Vec<(&'static str, Duration)>,
}

impl Timings {
    /// Phases in the order of their ends.
    pub fn phases(&self) -> &[(&'static str, Duration)] {
        &self.phases
    }

    /// Time from the start to the end of the last phase.
    pub fn total(&self) -> Duration {
        self.phases.iter().map(|(_, after)| *after).max().unwrap_or_default()
    }
}

impl std::fmt::Display for Timings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, after) in &self.phases {
            writeln!(f, "{:6.2} s  {name}", after.as_secs_f64())?;
        }
        Ok(())
    }
}

/// Measures a start.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    begin: Instant,
    timings: std::sync::Mutex<Timings>,
    progress: Progress,
}

impl Stopwatch {
    pub(crate) fn start(progress: Progress) -> Self {
        Self { begin: Instant::now(), timings: std::sync::Mutex::default(), progress }
    }

    pub(crate) fn reached(&self, name: &'static str) {
        let after = self.begin.elapsed();
        self.timings.lock().unwrap_or_else(std::sync::PoisonError::into_inner).phases.push((name, after));
        self.progress.report(&Event::Phase { name, after });
    }

    pub(crate) fn finish(self) -> Timings {
        self.timings.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
