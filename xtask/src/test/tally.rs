//! Counts the results printed by `cargo test`.

use std::{fmt, fs, path::Path};

/// Tests passed, failed and skipped so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    passed: usize,
    failures: Vec<String>,
    failed: usize,
    skipped: Vec<String>,
}

impl Tally {
    /// Counts a check as one test.
    pub fn check(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failed += 1;
            self.failures.push(name.to_owned());
        }
    }

    /// Adds the counts of a lane of tests.
    pub fn add(&mut self, lane: Self) {
        self.passed += lane.passed;
        self.failures.extend(lane.failures);
        self.failed += lane.failed;
        self.skipped.extend(lane.skipped);
    }

    /// Reads one line of `cargo test`; true at the end of a suite.
    pub fn line(&mut self, line: &str) -> bool {
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.push(name.to_owned());
        }
        // A test printing without capture breaks its own line; the summary line is always complete.
        let Some(counts) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return false;
        };
        for part in counts.1.split("; ") {
            let mut words = part.split(' ');
            let Some(count) = words.next().and_then(|count| count.parse::<usize>().ok()) else { continue };
            match words.next() {
                Some("passed") => self.passed += count,
                Some("failed") => self.failed += count,
                Some("ignored") => {
                    self.skipped.extend((0..count).map(|_| "a test marked #[ignore]".to_owned()));
                }
                _ => {}
            }
        }
        true
    }

    /// Moves the tests listed in `path` from the passed to the skipped ones; removes the file.
    pub fn read_skips(&mut self, path: &Path) {
        let Ok(text) = fs::read_to_string(path) else { return };
        for line in text.lines() {
            self.passed = self.passed.saturating_sub(1);
            self.skipped.push(line.to_owned());
        }
        // Harmless if this fails: the name contains this process's id.
        let _ = fs::remove_file(path);
    }

    /// Number of failures.
    pub fn failures(&self) -> usize {
        self.failed
    }

    /// Whether anything failed.
    pub fn failed(&self) -> bool {
        self.failed > 0
    }

    /// The result in one word.
    pub fn verdict(&self) -> &'static str {
        if self.failed() { "FAILED" } else { "All well" }
    }

    /// Prints the names of failed and skipped tests.
    pub fn print_failures(&self) {
        for name in &self.failures {
            println!("  failed: {name}");
        }
        for name in &self.skipped {
            println!("  skipped: {name}");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if !self.skipped.is_empty() {
            write!(f, ", {} skipped", self.skipped.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_suites_and_names_failures() {
        let mut tally = Tally::default();
        assert!(!tally.line("test a::b ... ok"));
        assert!(!tally.line("test a::c ... FAILED"));
        assert!(tally.line(
            "test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s"
        ));
        tally.check("lints", true);
        assert_eq!(tally.to_string(), "4 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failures, ["a::c"]);
        assert!(tally.failed());
    }

    #[test]
    fn a_skip_is_not_a_pass() {
        let path = std::env::temp_dir().join(format!("tessera-tally-{}", std::process::id()));
        std::fs::write(&path, "node_tier_runs_a_pod: not root\n").unwrap();
        let mut tally = Tally { passed: 2, ..Tally::default() };
        tally.read_skips(&path);
        assert_eq!(tally.to_string(), "1 passed, 0 failed, 1 skipped");
        assert!(!path.exists());
    }
}
