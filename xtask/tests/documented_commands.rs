//! Every `cargo xtask` command in README and docs is one.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

/// Commands that are programs of their own, whose tests look at the arguments.
const PASSED_ON: [&str; 9] =
    ["demo", "cluster", "crds", "admission", "bench", "oracle", "strangers", "image", "gpu-check"];

#[test]
fn every_documented_command_is_one() {
    let commands = tessera_workspace::documented_commands("cargo xtask");
    assert!(commands.len() > 20, "{commands:?}");
    for (page, arguments) in commands {
        if arguments.first().is_none_or(|command| PASSED_ON.contains(&command.as_str())) {
            continue;
        }
        let output =
            Command::new(env!("CARGO_BIN_EXE_xtask")).args(&arguments).arg("--help").output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {}: {error}", page.display(), arguments.join(" "));
    }
}
