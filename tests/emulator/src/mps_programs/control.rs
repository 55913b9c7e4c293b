//! The command line of the stub `nvidia-cuda-mps-control`.

use std::process::ExitCode;

use super::daemon::Mode;
use super::{daemon, shell};
use crate::mps::place::Place;

/// Runs the program: `-d` and `-f` start a daemon; without options, a shell to the running daemon.
pub fn main() -> ExitCode {
    let mut start = None;
    let mut mode = Mode::default();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "-d" => start = Some(Start::Background),
            "-f" => start = Some(Start::Foreground),
            "-M" | "-multiuser-server" | "--multiuser-server" => mode.multi_user = true,
            "-S" | "--static-partitioning" => mode.static_partitioning = true,
            other => {
                eprintln!("nvidia-cuda-mps-control: {other}: this stub knows -d, -f, -M and -S");
                return ExitCode::FAILURE;
            }
        }
    }
    let place = Place::of_environment();
    let result = match start {
        None => return shell::main(&place),
        Some(Start::Foreground) => daemon::run(&place, mode),
        Some(Start::Background) => daemon::detach(&place, mode),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

enum Start {
    Background,
    Foreground,
}
