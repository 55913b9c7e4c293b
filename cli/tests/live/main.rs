//! `kubectl gpu` against a real control plane.

#![allow(clippy::unwrap_used)] // The helpers are tests too, which clippy does not see.

mod allocate;
mod doctor;
mod extended_resource;
mod gate;
mod migrate;
mod pools;
mod quota;
mod rights;
mod roles;
mod run;
mod simulate;
mod topology;

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(180);

async fn run(kubeconfig: &Path, arguments: &[&str]) -> (i32, String, Value) {
    let output: Output = tokio::process::Command::new(env!("CARGO_BIN_EXE_kubectl-gpu"))
        .args(arguments)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let said = format!("{text}{}", String::from_utf8(output.stderr).unwrap());
    (output.status.code().unwrap(), said, value)
}
