//! Connections to the job's hosts.

use std::{
    net::{TcpStream, ToSocketAddrs},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    channel::{self, Channel, ChannelError},
    job::Job,
};

/// For one attempt.
const ATTEMPT: Duration = Duration::from_secs(5);

/// A host with another key is final after this long: until then its address may still be another job's former pod's.
const STALE: Duration = Duration::from_secs(60);

/// Pauses between attempts, and when to tell of the wait.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const SAID: Duration = Duration::from_secs(5);

/// Connects to a host of the job, and waits for it to be up.
///
/// # Errors
/// The host does not come, or has another key.
pub fn connect(job: &Job, place: usize, program: &str) -> Result<Channel> {
    let host = &job.hosts[place];
    let key = job.key.as_ref().context("this job has no key")?;
    // A pod reaches itself without the cluster's DNS.
    let address = if place == job.index { "127.0.0.1" } else { &host.address };
    let started = Instant::now();
    let (mut pause, mut said) = (FIRST_PAUSE, false);
    loop {
        let error = match attempt(address, host.port).and_then(|stream| channel::connect(stream, key)) {
            Ok(channel) => return Ok(channel),
            Err(error @ (ChannelError::Key | ChannelError::Preface))
                if started.elapsed() >= job.wait.min(STALE) =>
            {
                return Err(error).with_context(|| format!("{} is not this job's host", host.name));
            }
            Err(error) => error,
        };
        let waited = started.elapsed();
        if waited >= job.wait {
            bail!("host {} did not come in {} s: {error}", host.name, job.wait.as_secs());
        }
        if waited >= SAID && !said {
            eprintln!("{program}: waiting for host {}: {error}", host.name);
            said = true;
        }
        thread::sleep(pause.min(job.wait.saturating_sub(waited)));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn attempt(address: &str, port: u16) -> Result<TcpStream, ChannelError> {
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in (address, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ATTEMPT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last.into())
}
