//! Where the run spent its time.

use std::{
    fmt, fs,
    path::Path,
    time::{Duration, Instant},
};

/// Number of rows shown, and of slowest tests.
const ROWS: usize = 15;
const TESTS: usize = 5;

/// A row of the table.
#[derive(Clone, Debug)]
struct Row {
    kind: &'static str,
    name: String,
    took: Duration,
}

/// Durations so far.
pub(super) struct Times {
    started: Instant,
    rows: Vec<Row>,
    /// Only of tests run one at a time; the times of concurrent tests say little.
    tests: Vec<(String, Duration)>,
    running: Option<(String, Instant)>,
    /// Percent of the processors' time used while the tests ran.
    busy: Option<u64>,
}

impl Default for Times {
    /// None yet; the total is counted from now on.
    fn default() -> Self {
        Self { started: Instant::now(), rows: Vec::new(), tests: Vec::new(), running: None, busy: None }
    }
}

impl Times {
    /// Adds the durations of a lane. Lanes run side by side, so together they may take longer than the run.
    pub(super) fn add(&mut self, lane: Self) {
        self.rows.extend(lane.rows);
        self.tests.extend(lane.tests);
    }

    /// Runs and times a build or a check.
    pub(super) fn build<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        self.rows.push(Row { kind: "build", name: name.to_owned(), took: started.elapsed() });
        result
    }

    /// Notes the duration of a suite.
    pub(super) fn suite(&mut self, name: &str, took: Duration) {
        self.rows.push(Row { kind: "suite", name: name.to_owned(), took });
    }

    /// Runs the tests, and notes how busy they keep the processors: more at once help only where these idle.
    pub(super) fn processors<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let ticks = || ticks(&fs::read_to_string("/proc/stat").ok()?);
        let before = ticks();
        let result = work();
        self.busy = before.zip(ticks()).and_then(|((busy, all), (busy_after, all_after))| {
            // The kernel's count of waiting for disks may go back.
            (100 * busy_after.saturating_sub(busy)).checked_div(all_after.saturating_sub(all))
        });
        result
    }

    /// Adds the starts of clusters listed in `path`, in seconds, one a line; removes the file.
    pub(super) fn read_clusters(&mut self, path: &Path) {
        let Ok(text) = fs::read_to_string(path) else { return };
        let starts: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        let name = format!("{} started, as a part of the suites", starts.len());
        if let Ok(took) = Duration::try_from_secs_f64(starts.iter().sum()) {
            self.rows.push(Row { kind: "clusters", name, took });
        }
        // Harmless if this fails: the name contains this process's id.
        let _ = fs::remove_file(path);
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
}

/// The processors' time in use, and all of it, since the machine started (proc(5), `/proc/stat`).
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let ticks = stat.lines().next()?.strip_prefix("cpu")?.split_whitespace();
    // User, nice, system, idle, iowait, irq, softirq, steal; guests are counted as users already.
    let ticks: Vec<u64> = ticks.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let all = ticks.iter().sum();
    Some((all - ticks.get(3)? - ticks.get(4)?, all))
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total().as_secs_f64().max(f64::MIN_POSITIVE);
        let mut row = |kind: &str, name: &str, took: Duration| {
            let seconds = took.as_secs_f64();
            writeln!(f, "{seconds:8.1} s {:4.0} %  {kind:8}  {name}", 100.0 * seconds / total)
        };
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.took));
        let (shown, others) = rows.split_at(rows.len().min(ROWS));
        for Row { kind, name, took } in shown {
            row(kind, name, *took)?;
        }
        if !others.is_empty() {
            let took = others.iter().map(|row| row.took).sum();
            row("", &format!("{} others", others.len()), took)?;
        }
        let mut tests: Vec<&(String, Duration)> = self.tests.iter().collect();
        tests.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        for (name, took) in tests.into_iter().take(TESTS) {
            row("test", name, *took)?;
        }
        if let Some(busy) = self.busy {
            writeln!(f, "The tests used {busy} % of the processors' time.")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(seconds: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::default();
        for took in seconds {
            times.suite(&format!("suite {took}"), Duration::from_secs(took));
        }
        times
    }

    fn lines(times: &Times) -> Vec<String> {
        times.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_slowest_comes_first_and_the_quick_ones_share_a_row() {
        let lines = lines(&times(1..=17));
        assert!(lines[0].contains("17.0 s") && lines[0].ends_with("suite     suite 17"), "{lines:?}");
        assert_eq!(lines.len(), ROWS + 1, "{lines:?}");
        assert!(lines[ROWS].contains(" 3.0 s") && lines[ROWS].ends_with("2 others"), "{lines:?}");
    }

    #[test]
    fn processors_are_busy_or_idle() {
        let stat = "cpu  10 1 20 300 40 2 3 4 5 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(ticks(stat), Some((40, 380)));
        assert_eq!(ticks("intr 1 2"), None);
        let mut times = times([]);
        times.processors(|| std::thread::sleep(Duration::from_millis(50)));
        let text = lines(&times).pop().unwrap();
        assert!(text.starts_with("The tests used "), "{text}");
    }

    #[test]
    fn starts_of_clusters_add_up() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "1.5\n2.5\n").unwrap();
        let mut times = times([3]);
        times.read_clusters(file.path());
        let lines = lines(&times);
        assert!(lines[0].contains(" 4.0 s") && lines[0].contains("clusters  2 started"), "{lines:?}");
        assert!(!file.path().exists());
    }
}
