//! A running oracle.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tessera_api::kubernetes::KubernetesVersion;

use crate::program;

/// A running oracle, asked line by line.
pub struct Oracle {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts the program of this Kubernetes release, built first if missing.
    pub fn start(version: KubernetesVersion) -> Self {
        let mut child = Command::new(program::path(version))
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
        // The program ends when its input is closed.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
