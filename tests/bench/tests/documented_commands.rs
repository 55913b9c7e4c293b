//! Every benchmark named in README and docs is one.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

#[test]
fn every_documented_benchmark_is_one() {
    let commands = tessera_workspace::documented_commands("cargo xtask bench");
    assert!(commands.len() > 5, "{commands:?}");
    for (page, arguments) in commands {
        let program = env!("CARGO_BIN_EXE_tessera-bench");
        let output = Command::new(program).args(&arguments).arg("--help").output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: bench {}: {error}", page.display(), arguments.join(" "));
    }
}
