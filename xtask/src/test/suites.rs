//! Test programs, built by cargo and run by us.

use std::{
    collections::BTreeSet,
    io::{self, BufRead as _, BufReader, Read},
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde_json::Value;
use tessera_workspace as workspace;

use super::{tally::Tally, times::Times};

/// The suites for other versions of Kubernetes than the default: package, and file in `tests/`.
pub(super) const OF_VERSIONS: [(&str, &str); 3] =
    [("tessera-kubelet-plugin", "chart"), ("tessera-controller", "steering"), OF_TWO_VERSIONS];

/// The suite with two versions of Kubernetes at once; a run on the default version alone builds no second one.
const OF_TWO_VERSIONS: (&str, &str) = ("tessera-end-to-end", "upgrade");

/// Result of the build.
#[derive(Default)]
pub(super) struct Build {
    /// Whether everything was built.
    pub(super) succeeded: bool,
    /// The test programs, sorted by package and name.
    pub(super) suites: Vec<Suite>,
    /// Packages with a library, whose documentation may have tests.
    pub(super) libraries: BTreeSet<String>,
}

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Suite {
    /// Its package.
    pub(super) package: String,
    /// `lib`, `bin` or `test`.
    pub(super) kind: String,
    /// Name of the library, the program or the file in `tests/`.
    pub(super) target: String,
    /// The package's folder.
    pub(super) folder: PathBuf,
    pub(super) executable: PathBuf,
    /// The Kubernetes version of its clusters; `None` for the default.
    pub(super) kubernetes: Option<String>,
}

impl Build {
    /// Builds the workspace with all tests, or only with the tests of some packages.
    pub(super) fn run(packages: &[String]) -> Result<Self> {
        let mut build = Self::default();
        if packages.is_empty() {
            build.cargo(&["--workspace", "--lib", "--bins", "--tests"])?;
        } else {
            build.cargo(&["--workspace", "--lib", "--bins"])?;
            if build.succeeded {
                let selection = packages.iter().flat_map(|package| ["--package", package]);
                build.libraries.clear();
                build.cargo(&selection.chain(["--lib", "--bins", "--tests"]).collect::<Vec<_>>())?;
            }
        }
        build.suites.sort();
        build.suites.dedup();
        Ok(build)
    }

    /// All suites but the one with two versions of Kubernetes.
    pub(super) fn on_default_version(mut self) -> Self {
        self.suites.retain(|suite| (&*suite.package, &*suite.target) != OF_TWO_VERSIONS);
        self
    }

    /// Only the tests for several versions of Kubernetes, on this one.
    pub(super) fn on(mut self, version: &str) -> Self {
        self.libraries.clear();
        self.suites.retain(|suite| OF_VERSIONS.contains(&(&*suite.package, &*suite.target)));
        for suite in &mut self.suites {
            suite.kubernetes = Some(version.to_owned());
        }
        self
    }

    fn cargo(&mut self, arguments: &[&str]) -> Result<()> {
        let mut child = workspace::cargo()?
            .args(["build", "--quiet", "--message-format=json-render-diagnostics"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run cargo build")?;
        let output = child.stdout.take().context("cargo build has no output")?;
        for line in BufReader::new(output).lines() {
            let line = line.context("cannot read what cargo build prints")?;
            self.message(&serde_json::from_str(&line).unwrap_or_default());
        }
        self.succeeded = child.wait().context("cannot wait for cargo build")?.success();
        Ok(())
    }

    /// Reads one of cargo's messages (The Cargo Book, External tools).
    fn message(&mut self, message: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if message["reason"] != "compiler-artifact" {
            return;
        }
        let package = package(message["package_id"].as_str().unwrap_or_default()).to_owned();
        let kinds: Vec<&str> =
            message["target"]["kind"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let is_of_workspace = message["package_id"].as_str().is_some_and(|id| id.starts_with("path+"));
        if is_of_workspace && kinds.iter().any(|kind| kind.ends_with("lib")) {
            self.libraries.insert(package.clone());
        }
        if message["profile"]["test"] != true {
            return;
        }
        let (Some(executable), Some(manifest)) =
            (message["executable"].as_str(), message["manifest_path"].as_str())
        else {
            return;
        };
        let kind = kinds.first().copied().unwrap_or_default();
        self.suites.push(Suite {
            package,
            // A library may be of several kinds.
            kind: if kind.ends_with("lib") { "lib" } else { kind }.to_owned(),
            target: text(&message["target"]["name"]),
            folder: PathBuf::from(manifest).with_file_name(""),
            executable: executable.into(),
            kubernetes: None,
        });
    }
}

impl Suite {
    /// Its name for people.
    pub(super) fn name(&self) -> String {
        match self.kind.as_str() {
            "lib" => format!("{} (unit tests)", self.package),
            "bin" => format!("{} (unit tests of {})", self.package, self.target),
            _ => format!("{} {}", self.package, self.target),
        }
    }

    /// Its command, as cargo would run it: in its package's folder, with the cargo variables read by our tests.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder).env("CARGO_PKG_NAME", &self.package);
        if let Some(version) = &self.kubernetes {
            command.env("TESSERA_KUBERNETES", version);
        }
        command
    }
}

/// The name in a package id: `path+file:///w/crates/base/api#tessera-api@0.1.0`, or `path+file:///w/xtask#0.1.0` where the
/// folder has the package's name.
fn package(id: &str) -> &str {
    let (path, fragment) = id.split_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

/// Runs tests, shows their output and counts them. Times them if they run one at a time, because only then a test's
/// name is printed before it runs. Returns whether the command succeeded.
pub(super) fn read(
    mut command: Command,
    tally: &mut Tally,
    times: &mut Times,
    suite: &str,
    one_at_a_time: bool,
    show: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {suite}"))?;
    let mut output = child.stdout.take().context("the tests have no output")?;
    let (mut buffer, mut line) = ([0; 1 << 13], Vec::new());
    loop {
        let count = output.read(&mut buffer).context("cannot read what the tests print")?;
        // Not line by line: incomplete lines must be visible while a test runs.
        show(&buffer[..count]).context("cannot print")?;
        for byte in &buffer[..count] {
            if *byte == b'\n' {
                let text = String::from_utf8_lossy(&line).into_owned();
                if tally.line(&text) {
                    times.last_test_ends();
                }
                line.clear();
            } else {
                line.push(*byte);
                if one_at_a_time && line.starts_with(b"test ") && line.ends_with(b" ... ") {
                    let name = String::from_utf8_lossy(&line[5..line.len() - 5]).into_owned();
                    times.test_starts(suite, &name);
                }
            }
        }
        if count == 0 {
            break;
        }
    }
    times.last_test_ends();
    Ok(child.wait().context("cannot wait for the tests")?.success())
}

/// Whether a package of the root or of `tests/` has such a file of tests.
#[cfg(test)]
pub(super) fn is_file(package: &str, target: &str) -> bool {
    let folder = package.strip_prefix("tessera-").unwrap_or(package);
    [folder.to_owned(), format!("tests/{folder}")].iter().any(|folder| {
        let tests = workspace::root().join(folder).join("tests");
        tests.join(target).is_dir() || tests.join(format!("{target}.rs")).is_file()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn package_ids_are_read() {
        assert_eq!(package("path+file:///w/crates/base/api#tessera-api@0.1.0"), "tessera-api");
        assert_eq!(package("path+file:///w/xtask#0.1.0"), "xtask");
    }

    #[test]
    fn only_programs_with_tests_are_suites() {
        let mut build = Build::default();
        for (kind, test) in [("cdylib", true), ("cdylib", false), ("bin", false), ("test", true)] {
            build.message(&json!({
                "reason": "compiler-artifact",
                "package_id": "path+file:///w/crates/base/api#tessera-api@0.1.0",
                "manifest_path": "/w/crates/base/api/Cargo.toml",
                "target": { "kind": [kind], "name": "n" },
                "profile": { "test": test },
                "executable": "/t/n",
            }));
        }
        let names: Vec<String> = build.suites.iter().map(Suite::name).collect();
        assert_eq!(names, ["tessera-api (unit tests)", "tessera-api n"]);
        assert_eq!(build.libraries.len(), 1);
        assert_eq!(build.suites[0].folder, PathBuf::from("/w/crates/base/api/"));
    }

    #[test]
    fn other_versions_of_kubernetes_run_their_suites_alone() {
        let suite = |package: &str, target: &str| Suite {
            package: package.to_owned(),
            kind: "test".to_owned(),
            target: target.to_owned(),
            folder: PathBuf::new(),
            executable: PathBuf::from("/t/n"),
            kubernetes: None,
        };
        let all = [
            ("tessera-controller", "steering"),
            ("tessera-end-to-end", "steering"),
            ("tessera-end-to-end", "upgrade"),
        ];
        let build = || Build {
            suites: all.map(|(package, target)| suite(package, target)).into(),
            libraries: ["tessera-controller".to_owned()].into(),
            ..Build::default()
        };
        let names = |build: &Build| build.suites.iter().map(Suite::name).collect::<Vec<_>>();
        assert_eq!(
            names(&build().on_default_version()),
            ["tessera-controller steering", "tessera-end-to-end steering"]
        );
        let build = build().on("1.36");
        assert_eq!(names(&build), ["tessera-controller steering", "tessera-end-to-end upgrade"]);
        assert!(build.libraries.is_empty());
        let command = build.suites[0].command();
        let version = command.get_envs().find(|(name, _)| *name == "TESSERA_KUBERNETES").unwrap().1;
        assert_eq!(version.unwrap(), "1.36");
        // Each of them is there.
        for (package, target) in OF_VERSIONS {
            assert!(is_file(package, target), "{package} {target}");
        }
    }

    #[test]
    fn tests_that_run_one_at_a_time_are_timed() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "printf 'test a ... '; sleep 0.2; printf 'ok\\ntest b ... '; printf 'said\\nok\\n\\n'; \
             echo 'test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s'",
        ]);
        let (mut tally, mut times) = (Tally::default(), Times::default());
        let mut shown = Vec::new();
        let mut show = |text: &[u8]| {
            shown.extend(text);
            Ok(())
        };
        assert!(read(command, &mut tally, &mut times, "s", true, &mut show).unwrap());
        assert!(shown.starts_with(b"test a ... ok"));
        assert_eq!(tally.to_string(), "2 passed, 0 failed");
        let text = times.to_string();
        assert!(text.contains("s: a"), "{text}");
    }
}
