//! Every `kubectl gpu` command in README and docs is one.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

#[test]
fn every_documented_command_is_one() {
    let commands = tessera_workspace::documented_commands("kubectl gpu");
    assert!(commands.len() > 10, "{commands:?}");
    for (page, arguments) in commands {
        // What comes behind a script, or two dashes, is the job's.
        let options = arguments.iter().take_while(|word| *word != "--" && !word.ends_with(".sh"));
        let output =
            Command::new(env!("CARGO_BIN_EXE_kubectl-gpu")).args(options).arg("--help").output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: kubectl gpu {}: {error}", page.display(), arguments.join(" "));
    }
}
