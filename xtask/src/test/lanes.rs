//! The test programs in three lanes: tests of whole clusters wait for half of their time, some others for nearly all of it, and the
//! rest use it.

use std::{
    collections::VecDeque,
    io,
    process::Command,
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, anyhow};

use tessera_workspace as workspace;

use super::{
    Notes,
    suites::{self, Build, Suite},
    tally::Tally,
    times::Times,
};

/// The packages whose tests start whole clusters. They run one after another: two cores can run one node at a time.
const CLUSTER_TESTS: [&str; 2] = ["tessera-harness", "tessera-end-to-end"];

/// Suites that mostly wait: for intervals of the plugin (`frame` takes 57 s of processor time in five minutes), or on a control plane
/// without nodes for one story to go on. They have a lane of their own, which takes nothing else, and are as many as end with the
/// other lanes.
const WAITING: [(&str, &str); 5] = [
    ("tessera-controller", "steering"),
    ("tessera-kubelet-plugin", "frame"),
    ("tessera-kubelet-plugin", "shares"),
    ("tessera-end-to-end", "health"),
    ("tessera-end-to-end", "worked_fleet"),
];

/// The next work of a lane.
enum Work<'b> {
    Suite(&'b Suite),
    DocumentationTests(Command),
}

/// A lane and its results.
struct Lane<'s> {
    show: &'s (dyn Fn(&[u8]) -> io::Result<()> + Sync),
    tally: Tally,
    times: Times,
}

/// Runs all suites of a build, and the examples in the documentation. The first lane begins with the tests of clusters and shows
/// them as they run. All other suites are shown by `show` at their end: those of [`WAITING`], and the rest in the next lane that is
/// free.
///
/// # Errors
/// When a program cannot be started or read.
pub(super) fn run(
    build: &Build,
    packages: &[String],
    notes: &Notes,
    show: &(dyn Fn(&[u8]) -> io::Result<()> + Sync),
) -> Result<Vec<(Tally, Times)>> {
    let (waiting, busy): (Vec<&Suite>, Vec<&Suite>) =
        build.suites.iter().partition(|suite| WAITING.contains(&(&*suite.package, &*suite.target)));
    let (clusters, others): (Vec<&Suite>, Vec<&Suite>) =
        busy.into_iter().partition(|suite| CLUSTER_TESTS.contains(&suite.package.as_str()));
    let mut others: VecDeque<Work<'_>> = others.into_iter().map(Work::Suite).collect();
    others.extend(documentation_tests(build, packages)?.map(Work::DocumentationTests));
    let others = Mutex::new(others);
    let next = || others.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let lane = |clusters: &[&Suite]| -> Result<Lane<'_>> {
        let mut lane = Lane::new(show);
        for suite in clusters {
            lane.cluster_tests(suite, notes)?;
        }
        while let Some(work) = next() {
            match work {
                Work::Suite(suite) => lane.at_once(&suite.name(), command(suite, notes))?,
                Work::DocumentationTests(command) => {
                    lane.at_once("examples in the documentation", command)?;
                }
            }
        }
        Ok(lane)
    };
    let quiet = || -> Result<Lane<'_>> {
        let mut lane = Lane::new(show);
        for suite in waiting {
            lane.at_once(&suite.name(), command(suite, notes))?;
        }
        Ok(lane)
    };
    let lanes = thread::scope(|scope| {
        let beside = [scope.spawn(|| lane(&[])), scope.spawn(quiet)];
        let first = lane(&clusters);
        let beside = beside.map(|lane| lane.join().map_err(|_| anyhow!("a lane of tests panicked"))?);
        std::iter::once(first).chain(beside).collect::<Result<Vec<_>>>()
    })?;
    Ok(lanes.into_iter().map(|lane| (lane.tally, lane.times)).collect())
}

impl<'s> Lane<'s> {
    fn new(show: &'s (dyn Fn(&[u8]) -> io::Result<()> + Sync)) -> Self {
        Self { show, tally: Tally::default(), times: Times::default() }
    }

    /// Tests run one at a time, shown as they run.
    fn cluster_tests(&mut self, suite: &Suite, notes: &Notes) -> Result<()> {
        (self.show)(header(&suite.name()).as_bytes()).context("cannot print")?;
        let mut command = command(suite, notes);
        command.args(["--test-threads", "1", "--nocapture"]);
        self.tests(&suite.name(), command, true, &mut |text| (self.show)(text))
    }

    /// Tests run side by side, shown when all of them have ended.
    fn at_once(&mut self, name: &str, command: Command) -> Result<()> {
        let mut shown = header(name).into_bytes();
        let result = self.tests(name, command, false, &mut |text| {
            shown.extend(text);
            Ok(())
        });
        (self.show)(&shown).context("cannot print")?;
        result
    }

    fn tests(
        &mut self,
        name: &str,
        command: Command,
        one_at_a_time: bool,
        show: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<()> {
        let before = self.tally.failures();
        let started = Instant::now();
        let succeeded = suites::read(command, &mut self.tally, &mut self.times, name, one_at_a_time, show)?;
        self.times.suite(name, started.elapsed());
        // A suite ending without its summary line, for example by a signal, has counted no failure.
        if !succeeded && self.tally.failures() == before {
            self.tally.check(name, false);
        }
        Ok(())
    }
}

fn header(name: &str) -> String {
    format!("\n== tests: {name}\n")
}

fn command(suite: &Suite, notes: &Notes) -> Command {
    let mut command = suite.command();
    command.args(["--format", "pretty"]);
    command
        .env("TESSERA_SKIPS", &notes.skips)
        .env("TESSERA_CLUSTERS", &notes.clusters)
        .env(workspace::BUILT_VARIABLE, "1");
    command
}

/// None where no selected package has a library, because cargo refuses such a run.
fn documentation_tests(build: &Build, packages: &[String]) -> Result<Option<Command>> {
    let with_library: Vec<&String> =
        packages.iter().filter(|package| build.libraries.contains(*package)).collect();
    if with_library.is_empty() && !packages.is_empty() {
        return Ok(None);
    }
    let mut command = workspace::cargo()?;
    command.args(["test", "--quiet", "--doc", "--no-fail-fast"]);
    if packages.is_empty() {
        command.arg("--workspace");
    }
    command.args(with_library.iter().flat_map(|package| ["--package", package]));
    command.args(["--", "--format", "pretty"]);
    Ok(Some(command))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn every_suite_runs_once_in_one_of_the_lanes() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("suite");
        let says =
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        fs::write(
            &program,
            format!("#!/bin/sh\necho '{says}'\n[ $CARGO_PKG_NAME != killed ] || kill -9 $$\n"),
        )
        .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let suite = |(package, target): (&str, &str)| Suite {
            package: package.to_owned(),
            kind: "lib".to_owned(),
            target: target.to_owned(),
            folder: folder.path().to_owned(),
            executable: program.clone(),
            kubernetes: None,
        };
        let [first, second] = CLUSTER_TESTS;
        let mut suites =
            ["a", "b", "killed", first, second].map(|package| suite((package, package))).to_vec();
        suites.extend(WAITING.map(suite));
        let build = Build { succeeded: true, suites, ..Build::default() };
        // A package without a library: no examples are looked for.
        let lanes = run(
            &build,
            &["a".to_owned()],
            &Notes { skips: "skips".into(), clusters: "clusters".into() },
            &|_| Ok(()),
        )
        .unwrap();
        let mut tally = Tally::default();
        for (lane, _) in lanes {
            tally.add(lane);
        }
        assert_eq!(tally.to_string(), "10 passed, 1 failed");
    }

    #[test]
    fn each_suite_that_waits_is_there() {
        for (package, target) in WAITING {
            assert!(suites::is_file(package, target), "{package} {target}");
        }
    }
}
