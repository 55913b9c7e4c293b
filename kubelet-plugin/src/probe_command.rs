//! `kubelet-plugin probe`: asks a running plugin over its probe socket whether it is alive or ready.
//!
//! The kubelet runs it in the plugin's container every few seconds, so it is a plain blocking client without a
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
use clap::Parser;

use tessera_kube_util::arguments::absolute;

/// First argument that selects this command.
pub const SUBCOMMAND: &str = "probe";

/// Time limit of an answer: shorter than the timeout of the chart's probes, so that the reason is still printed.
const PATIENCE: Duration = Duration::from_secs(4);

/// Size limit of an answer, in bytes. Answers to probes have a few lines.
const LONGEST: u64 = 64 << 10;

/// Asks a running plugin whether it is alive (/healthz) or ready (/readyz) and prints what it answers.
///
/// Exit code 0 if it is, 1 if it is not or does not answer. Meant for the kubelet's probes, which would have to queue
/// with everybody else on the metrics port.
#[derive(Debug, Parser)]
#[command(name = "kubelet-plugin probe", max_term_width = 100)]
struct Options {
    /// The plugin's --probe-socket.
    #[arg(long, env = "PROBE_SOCKET", value_name = "FILE", value_parser = absolute)]
    socket: PathBuf,

    /// What to ask for.
    #[arg(value_parser = ["/healthz", "/readyz"])]
    path: String,
}

/// Runs the command. `arguments` are those after the program's name.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let options = Options::parse_from(arguments);
    match ask(&options.socket, &options.path) {
        Ok((is_well, said)) => {
            // Nobody may be reading it.
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
    let answer = exchange().with_context(|| format!("the plugin does not answer at {}", socket.display()))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .with_context(|| format!("{} hung up before it answered", socket.display()))?;
    Ok((head.split(' ').nth(1) == Some("200"), body.to_owned()))
}
