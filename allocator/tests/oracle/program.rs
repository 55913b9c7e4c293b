//! The oracle's program: tests/oracle, Kubernetes' own code.
// Test code, built into `cargo xtask oracle`, too: there as here a broken expectation ends the run.
#![allow(clippy::expect_used)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

fn hash(bytes: &[u8], mut state: u64) -> u64 {
    // FNV-1a: the name of a folder, nothing secret.
    for byte in bytes {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    state
}

/// Its path; built on first use into `$TESSERA_CACHE` or `~/.cache/tessera`.
pub fn path(module: &Path) -> PathBuf {
    let mut sources: Vec<PathBuf> = std::fs::read_dir(module)
        .expect("tests/oracle is part of the repository")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| ["go", "mod", "sum"].iter().any(|known| extension == *known))
        })
        .collect();
    sources.sort();
    let state = sources.iter().fold(0xcbf2_9ce4_8422_2325, |state, path| {
        hash(&std::fs::read(path).expect("a readable source"), state)
    });
    let cache = std::env::var_os("TESSERA_CACHE").map_or_else(
        || Path::new(&std::env::var_os("HOME").expect("HOME or TESSERA_CACHE is set")).join(".cache/tessera"),
        PathBuf::from,
    );
    let folder = cache.join(format!("oracle-{state:016x}"));
    let program = folder.join("oracle");
    if !program.exists() {
        std::fs::create_dir_all(&folder).expect("the cache folder can be made");
        let partial = folder.join(format!("oracle.{}", std::process::id()));
        let status = Command::new("go")
            .args(["build", "-o"])
            .arg(&partial)
            .arg(".")
            .current_dir(module)
            .status()
            .expect("Go builds the oracle: install Go or put it into PATH");
        assert!(status.success(), "go build of tests/oracle failed");
        std::fs::rename(&partial, &program).expect("the cache folder can be written");
    }
    program
}

/// A running oracle, asked line by line.
pub struct Oracle {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts it, built from the Go module in this folder.
    pub fn start(module: &Path) -> Self {
        let mut child = Command::new(path(module))
            .arg("-allocate")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the oracle starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Oracle { child, input, output }
    }

    /// Its answer to a line.
    pub fn ask(&mut self, line: &str) -> String {
        let input = self.input.as_mut().expect("open until dropped");
        input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).expect("the oracle reads");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("the oracle writes");
        assert!(!answer.is_empty(), "the oracle ended at {line}");
        answer
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // Closing its input ends it.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
