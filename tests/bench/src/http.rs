//! A program's HTTP pages, as requested by Prometheus and people.

use std::fmt;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::quantiles::Quantiles;

/// How often something is asked for.
const TIMES: usize = 20;

/// Answers to the same question.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scrapes {
    /// Size of the last answer, without its headers, in bytes.
    pub bytes: usize,
    /// From connecting to the last byte.
    pub time: Quantiles,
}

impl fmt::Display for Scrapes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scrapes { bytes, time } = self;
        write!(formatter, "{:.1} KiB in {:.1} ms", *bytes as f64 / 1024.0, time.p50_ms)?;
        write!(formatter, " (p99 {:.1} ms, {} times)", time.p99_ms, time.samples)
    }
}

/// The body of an answer.
///
/// # Errors
/// There is none, or its status is an error.
pub async fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (head, body) = text.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.lines().next().is_some_and(|line| line.contains(" 200 ")), "{path}: {head}");
    Ok(body.to_owned())
}

/// Asks several times, one after the other.
///
/// # Errors
/// As [`get`].
pub async fn scrapes(address: &str, path: &str) -> Result<Scrapes> {
    let (mut took, mut bytes) = (Vec::new(), 0);
    for _ in 0..TIMES {
        let begun = Instant::now();
        bytes = get(address, path).await?.len();
        took.push(begun.elapsed());
    }
    Ok(Scrapes { bytes, time: Quantiles::of(took) })
}
