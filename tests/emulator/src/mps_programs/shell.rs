//! The shell: lines from standard input go to the running daemon.

use std::io::{self, BufRead};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use crate::mps::place::Place;
use crate::mps::wire::{FromDaemon, Lines, ToDaemon};

/// The real program's message if no daemon answers.
const NO_DAEMON: &str = "Cannot find MPS control daemon process";

/// Reads commands until the end, or until one ended the daemon.
pub fn main(place: &Place) -> ExitCode {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let command = line.trim();
        if command.is_empty() {
            continue;
        }
        match ask(place, command) {
            Ok(text) if text.is_empty() => {}
            Ok(text) => println!("{text}"),
            Err(_) => {
                println!("{NO_DAEMON}");
                return ExitCode::FAILURE;
            }
        }
        if command.split_whitespace().next() == Some("quit") {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn ask(place: &Place, command: &str) -> io::Result<String> {
    let mut lines = Lines::new(UnixStream::connect(place.privileged())?)?;
    lines.send(&ToDaemon::Command(command.to_owned()))?;
    match lines.receive()? {
        Some(FromDaemon::Text(text)) => Ok(text),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
