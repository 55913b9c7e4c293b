//! Where the run spent its time.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

/// Number of slowest tests to show.
const SHOWN: usize = 10;

/// Shorter durations are not shown.
const SHORTEST: Duration = Duration::from_millis(100);

/// Durations so far.
pub(super) struct Times {
    started: Instant,
    /// Formatting, lints, …, in the order they ran, then the tests of each package.
    parts: Vec<(String, Duration)>,
    packages: BTreeMap<String, Duration>,
    suites: Vec<(String, Duration)>,
    /// Only of tests run one at a time; the times of concurrent tests say little.
    tests: Vec<(String, Duration)>,
    running: Option<(String, Instant)>,
}

impl Default for Times {
    /// None yet; the total is counted from now on.
    fn default() -> Self {
        Self {
            started: Instant::now(),
            parts: Vec::new(),
            packages: BTreeMap::new(),
            suites: Vec::new(),
            tests: Vec::new(),
            running: None,
        }
    }
}

impl Times {
    /// Adds the durations of a lane. Lanes run side by side, so together they may take longer than the run.
    pub(super) fn add(&mut self, lane: Self) {
        for (package, took) in lane.packages {
            *self.packages.entry(package).or_default() += took;
        }
        self.suites.extend(lane.suites);
        self.tests.extend(lane.tests);
    }

    /// Runs and times a part.
    pub(super) fn part<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        self.parts.push((name.to_owned(), started.elapsed()));
        result
    }

    /// Notes the duration of a suite.
    pub(super) fn suite(&mut self, package: &str, name: &str, took: Duration) {
        *self.packages.entry(package.to_owned()).or_default() += took;
        self.suites.push((name.to_owned(), took));
    }

    /// A test starts, so the one before has ended.
    pub(super) fn test_starts(&mut self, suite: &str, name: &str) {
        self.last_test_ends();
        self.running = Some((format!("{suite}: {name}"), Instant::now()));
    }

    /// The last test of a suite has ended.
    pub(super) fn last_test_ends(&mut self) {
        self.tests.extend(self.running.take().map(|(name, started)| (name, started.elapsed())));
    }

    /// Time since the run began.
    pub(super) fn total(&self) -> Duration {
        self.started.elapsed()
    }

    fn table(
        &self,
        f: &mut fmt::Formatter<'_>,
        title: &str,
        rows: impl IntoIterator<Item = (String, Duration)>,
    ) -> fmt::Result {
        let total = self.total().as_secs_f64().max(f64::MIN_POSITIVE);
        let mut rows = rows.into_iter().filter(|(_, took)| *took >= SHORTEST).peekable();
        if rows.peek().is_some() {
            writeln!(f, "{title}")?;
        }
        for (name, took) in rows {
            let seconds = took.as_secs_f64();
            writeln!(f, "{seconds:8.1} s {:4.0} %  {name}", 100.0 * seconds / total)?;
        }
        Ok(())
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tests = self.packages.iter().map(|(package, took)| (format!("tests of {package}"), *took));
        self.table(f, "Where the time went:", self.parts.iter().cloned().chain(tests))?;
        self.table(f, "The slowest suites:", slowest(&self.suites))?;
        self.table(f, "The slowest tests, of those that run one at a time:", slowest(&self.tests))
    }
}

fn slowest(all: &[(String, Duration)]) -> Vec<(String, Duration)> {
    let mut all = all.to_vec();
    all.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
    all.truncate(SHOWN);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_come_first_and_packages_add_up() {
        let mut times = Times::default();
        times.suite("a", "a one", Duration::from_secs(2));
        times.suite("a", "a two", Duration::from_secs(3));
        times.suite("b", "b", Duration::from_millis(1));
        let text = times.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("5.0 s") && lines[1].ends_with("tests of a"), "{text}");
        assert!(lines[3].ends_with("a two") && lines[4].ends_with("a one"), "{text}");
        assert_eq!(lines.len(), 5, "{text}");
    }
}
