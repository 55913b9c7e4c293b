//! `kubectl gpu simulate` with a fleet and a workload: what it prints and how it ends, compared with `tests/golden`. After a wanted change:
//! `UPDATE_GOLDEN=1 cargo test -p kubectl-gpu --test golden_simulate`, then read the difference.

#![allow(clippy::unwrap_used)] // The helpers are tests too, which clippy does not see.

use std::path::Path;
use std::process::{Command, Output};

/// Runs it where the examples are.
fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kubectl-gpu"))
        .arg("simulate")
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/simulate"))
        .env("KUBECONFIG", "no-such-kubeconfig")
        .output()
        .unwrap()
}

fn golden(name: &str, arguments: &[&str]) {
    let output = run(arguments);
    let found = format!(
        "$ kubectl gpu simulate {}\n{}{}exit code {}\n",
        arguments.join(" "),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
        output.status.code().unwrap()
    );
    assert!(!found.contains('\u{1b}'), "colours without a terminal");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/simulate-{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, wanted, "{name} differs from {}", path.display());
}

const EIGHT: [&str; 2] = ["--nodes", "8xdgx-a100,cards=4"];

/// 36 cards are asked for, and there are 32.
#[test]
fn whole_cards_need_more_than_there_is() {
    let with =
        [&EIGHT[..], &["--workload", "whole-cards.csv", "--policy", "tessera,kube-scheduler", "--runs", "1"]]
            .concat();
    golden("fleet-whole-cards", &with);
}

/// The same in shares needs 19.
#[test]
fn shares_need_nineteen_cards() {
    let price = ["--price", "A100-SXM4-80GB=1500", "--wish", "4xgpu,1xgpu,15%"];
    let with = [&EIGHT[..], &["--workload", "shares.csv"], &price].concat();
    golden("fleet-shares", &with);
}

const TEN: [&str; 6] = [
    "--nodes",
    "1xdgx-a100,cards=4",
    "--nodes",
    "1xdgx-a100,cards=3,mig=on",
    "--nodes",
    "1xdgx-a100,cards=3",
];

#[test]
fn ten_cards_are_fifty_four_gpus() {
    golden(
        "fleet-logical-gpus",
        &[&TEN[..], &["--workload", "logical-gpus.csv", "--policy", "tessera"]].concat(),
    );
    let json = ["--workload", "logical-gpus.csv", "--policy", "tessera", "-o", "json"];
    golden("fleet-json", &[&TEN[..], &json].concat());
}

/// Pods come and go; gangs begin together; with more nodes beside it.
#[test]
fn a_week() {
    let with = [
        "--workload",
        "a-week.csv",
        "--nodes",
        "3xdgx-h100",
        "--add",
        "1xdgx-h100",
        "--at",
        "4d",
        "--runs",
        "2",
    ];
    golden(
        "fleet-week",
        &[&with[..], &["--policy", "tessera,kube-scheduler", "--wish", "8xgpu,1g.10gb"]].concat(),
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let workload = ["--workload", "shares.csv"];
    golden("fleet-no-machine", &[&workload[..], &["--nodes", "2xdgx-h1000"]].concat());
    golden("fleet-no-cards", &[&workload[..], &["--nodes", "2xdgx-h100,cards=0"]].concat());
    golden("fleet-no-model", &[&EIGHT[..], &workload, &["--price", "H100=1"]].concat());
    golden("fleet-no-policy", &[&EIGHT[..], &workload, &["--policy", "fgd"]].concat());
    golden("fleet-no-workload", &EIGHT);
    golden("fleet-no-file", &[&EIGHT[..], &["--workload", "none.csv"]].concat());
    golden("fleet-no-wish", &[&EIGHT[..], &workload, &["--wish", "4"]].concat());
    golden("fleet-no-list", &[&EIGHT[..], &["--workload", "README.md"]].concat());
    golden("fleet-too-large", &[&workload[..], &["--nodes", "1500xt4", "--nodes", "1500xdgx-h100"]].concat());
    golden("fleet-nothing", &[]);
}
