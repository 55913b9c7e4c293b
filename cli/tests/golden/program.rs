//! The program, and what it is expected to print.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

pub fn run(arguments: &[&str], input: &str) -> Output {
    run_in("data", arguments, input)
}

/// Runs it in a folder of `tests`.
pub fn run_in(place: &str, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-gpu"))
        .args(arguments)
        .current_dir(folder().join(place))
        .env("KUBECONFIG", "no-such-kubeconfig")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

pub fn golden(name: &str, arguments: &[&str], input: &str) {
    golden_in("data", name, arguments, input);
}

/// Compares what it prints in a folder of `tests`.
pub fn golden_in(place: &str, name: &str, arguments: &[&str], input: &str) {
    let output = run_in(place, arguments, input);
    let found = format!(
        "$ kubectl gpu {}\n{}{}exit code {}\n",
        arguments.join(" "),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
        output.status.code().unwrap()
    );
    assert!(!found.contains('\u{1b}'), "colours without a terminal");
    let path = folder().join(format!("golden/{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &found).unwrap();
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, wanted, "{name} differs from {}", path.display());
}
