//! Takes the connections of the job's other programs.

use std::{
    collections::BTreeMap,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::{members::Members, step};
use crate::{
    channel::{self, Channel, Key},
    gpus::InUse,
    groups::Groups,
    job::Job,
    message::{self, Frame, Request},
    process::Reaper,
};

/// Connections at once without a proof of the key, and all together. One more of the first closes the oldest, one more of all is
/// closed; `srun` tries again.
const STRANGERS: usize = 64;
const MOST: usize = 4096;

/// A host's state.
pub struct Server {
    pub job: Job,
    pub reaper: Reaper,
    pub groups: Groups,
    pub members: Members,
    pub gpus: InUse,
    /// In the order of their arrival.
    strangers: Mutex<BTreeMap<u64, TcpStream>>,
    arrivals: AtomicU64,
    connections: AtomicUsize,
    steps: AtomicU64,
}

/// One more while it exists.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let counted = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < most).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    pub fn new(job: Job, reaper: Reaper) -> Self {
        Self {
            members: Members::new(job.hosts.len() - 1),
            job,
            reaper,
            groups: Groups::default(),
            gpus: InUse::default(),
            strangers: Mutex::default(),
            arrivals: AtomicU64::default(),
            connections: AtomicUsize::default(),
            steps: AtomicU64::default(),
        }
    }

    /// Answers connections, for ever.
    pub fn serve(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => {
                    let server = self.clone();
                    // Without a thread the connection is closed.
                    let _ = thread::Builder::new().spawn(move || server.answer(stream));
                }
                // Too many open files: some will be closed.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn answer(&self, stream: TcpStream) {
        let Some(_connection) = Counted::new(&self.connections, MOST) else { return };
        let from = stream.peer_addr();
        if let Err(error) = self.converse(stream)
            && let Ok(from) = from
        {
            eprintln!("gpu-run: connection from {}: {error:#}", from.ip());
        }
    }

    fn converse(&self, stream: TcpStream) -> Result<()> {
        let Some(key) = &self.job.key else { bail!("this job has no key") };
        let Some((sender, mut receiver)) = self.admit(stream, key) else { return Ok(()) };
        match message::receive(&mut receiver)? {
            Some(Frame::Control(Request::Member(index))) => {
                let host = self.job.hosts.get(index).context("a host of a larger job")?;
                self.members.serve(index, &host.name, sender, &mut receiver);
            }
            Some(Frame::Control(Request::Step(step))) => {
                if self.job.index > 0 {
                    self.members.wait_until_known();
                }
                let number = self.steps.fetch_add(1, Ordering::Relaxed);
                step::run(self, number, step, sender, receiver)?;
            }
            Some(Frame::Data(..)) => bail!("input without a step"),
            None => {}
        }
        Ok(())
    }

    /// None for strangers. They are not logged: anybody can fill a log.
    fn admit(&self, stream: TcpStream, key: &Key) -> Option<Channel> {
        let number = self.arrivals.fetch_add(1, Ordering::Relaxed);
        let copy = stream.try_clone().ok()?;
        {
            let mut strangers = self.strangers();
            if strangers.len() >= STRANGERS
                && let Some((_, oldest)) = strangers.pop_first()
            {
                // Ends its exchange of keys. Fails if the other side has closed it.
                let _ = oldest.shutdown(Shutdown::Both);
            }
            strangers.insert(number, copy);
        }
        let channel = channel::accept(stream, key).ok();
        self.strangers().remove(&number);
        channel
    }

    fn strangers(&self) -> MutexGuard<'_, BTreeMap<u64, TcpStream>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
