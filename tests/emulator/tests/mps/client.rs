//! A running `cuda-sample`.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::daemon::Machine;

pub struct Client {
    pub child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// What it said of its device.
    pub device: Value,
}

impl Client {
    /// Starts one with this environment; it waits for orders.
    pub fn start(machine: &Machine, environment: &[(&str, &str)]) -> Self {
        let mut program = machine.program("cuda-sample");
        program.envs(environment.iter().copied());
        Self::start_as(program)
    }

    /// Starts one by this command.
    pub fn start_as(mut command: Command) -> Self {
        let mut child = command.arg("--orders").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let device = next(&mut lines);
        Client { child, lines, device }
    }

    /// Gives an order; the answer.
    pub fn order(&mut self, order: &str) -> Value {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
        next(&mut self.lines)
    }

    /// What it says next.
    pub fn says(&mut self) -> Value {
        next(&mut self.lines)
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
