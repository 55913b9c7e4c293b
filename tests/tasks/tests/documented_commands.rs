//! Every command of this program in README and docs is one.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

const OWN: [&str; 7] = ["demo", "cluster", "crds", "admission", "oracle", "image", "gpu-check"];

#[test]
fn every_documented_command_is_one() {
    let commands = tessera_workspace::documented_commands("cargo xtask");
    let own = commands
        .iter()
        .filter(|(_, arguments)| arguments.first().is_some_and(|command| OWN.contains(&command.as_str())));
    let mut checked = 0;
    for (page, arguments) in own {
        checked += 1;
        let program = env!("CARGO_BIN_EXE_tessera-tasks");
        let output = Command::new(program).args(arguments).arg("--help").output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {}: {error}", page.display(), arguments.join(" "));
    }
    assert!(checked > 5, "{commands:?}");
}
