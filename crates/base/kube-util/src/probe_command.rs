//! The command `probe` of a program: asks the running program over its probe socket whether it is alive or ready.
//!
//! The kubelet runs it in the program's container every few seconds, so it is a plain blocking client without a
//! runtime.

use std::{
    ffi::OsString,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use crate::arguments::absolute;

/// First argument to select this command.
pub const SUBCOMMAND: &str = "probe";

/// Time limit of an answer: shorter than the timeout of the chart's probes, so that the reason is still printed.
const PATIENCE: Duration = Duration::from_secs(4);

/// Size limit of an answer, in bytes. Answers to probes have a few lines.
const LONGEST: u64 = 64 << 10;

/// Asks the running program whether it is alive (/healthz) or ready (/readyz) and prints what it answers.
///
/// Exit code 0 if it is, 1 if it is not or does not answer. Meant for the kubelet's probes, which would have to queue
/// with everybody else on the metrics port.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Options {
    /// The program's --probe-socket.
    #[arg(long, env = "PROBE_SOCKET", value_name = "FILE", value_parser = absolute)]
    socket: PathBuf,

    /// What to ask for.
    #[arg(value_parser = ["/healthz", "/readyz"])]
    path: String,
}

/// Runs the command under this name, such as `controller probe`. `arguments` are those after the program's name.
#[must_use]
pub fn main(name: &'static str, arguments: Vec<OsString>) -> ExitCode {
    let matches = Options::command().name(name).get_matches_from(arguments);
    let options = Options::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match ask(&options.socket, &options.path) {
        Ok((is_well, said)) => {
            // Stdout may be closed.
            let _ = io::stdout().write_all(said.as_bytes());
            if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the status of the answer is 200, and its text.
fn ask(socket: &Path, path: &str) -> anyhow::Result<(bool, String)> {
    let exchange = || -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // HTTP 1.0, so that the answer is not chunked and ends with the connection.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().with_context(|| format!("it does not answer at {}", socket.display()))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .with_context(|| format!("{} hung up before it answered", socket.display()))?;
    Ok((head.split(' ').nth(1) == Some("200"), body.to_owned()))
}
