//! `kubelet-plugin probe`: asks a running plugin whether it is well, over its probe socket.
//!
//! The kubelet runs it in the plugin's container every few seconds, so it is a plain blocking client without a runtime.

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

/// First argument by which the program is told apart.
pub const SUBCOMMAND: &str = "probe";

/// How long an answer may take: less than the chart's probes wait, so that it is told what is missing.
const PATIENCE: Duration = Duration::from_secs(4);

/// The longest answer that is read, bytes. Those of probes have a few lines.
const LONGEST: u64 = 64 << 10;

/// Asks a running plugin whether it is alive (/healthz) or ready (/readyz) and prints what it answers.
///
/// Exit code 0 if it is, 1 if it is not or does not answer. For the kubelet's probes, which would have to queue with
/// everybody else on the port of the metrics.
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

/// Runs it. `arguments` are those after the program's name.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let options = Options::parse_from(arguments);
    match ask(&options.socket, &options.path) {
        Ok((is_well, said)) => {
            // Nobody may be there to read it.
            let _ = io::stdout().write_all(said.as_bytes());
            if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the answer is 200, and its text.
fn ask(socket: &Path, path: &str) -> anyhow::Result<(bool, String)> {
    let exchange = || -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // Version 1.0: the answer comes in one piece, and ends with the connection.
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
