//! A running `cuda-sample`.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::host::Host;

pub struct Client {
    pub child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Its report about its device.
    pub device: Value,
}

impl Client {
    /// Starts one with this pipe directory and environment; the program then waits for orders.
    pub fn start(host: &Host, pipe: &Path, environment: &[(&str, &str)]) -> Self {
        Self::start_on(host, pipe, environment, 0)
    }

    /// Starts one on the device with this number.
    pub fn start_on(host: &Host, pipe: &Path, environment: &[(&str, &str)], device: usize) -> Self {
        let mut child = Command::new(host.machine.root().join("bin/cuda-sample"))
            .arg("--orders")
            .args(["--device", &device.to_string()])
            .env_clear()
            .env("CUDA_MPS_PIPE_DIRECTORY", pipe)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let device = next(&mut lines);
        Client { child, lines, device }
    }

    /// Gives an order and returns the answer.
    pub fn order(&mut self, order: &str) -> Value {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
        next(&mut self.lines)
    }

    /// Its next line of output.
    pub fn says(&mut self) -> Value {
        next(&mut self.lines)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let line = lines.next().expect("it says something").unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
