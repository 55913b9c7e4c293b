//! The job's end: index 0 tells the other hosts by a connection to each.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    channel::{Channel, Receiver, Sender},
    job::Job,
    message::{self, Frame, FromHost, Request},
    srun::connect,
};

/// A host is heard this often, and given up after this long in silence.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
pub const SILENCE: Duration = Duration::from_secs(60);

/// The other hosts, on index 0.
pub struct Members {
    expected: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    connected: BTreeMap<usize, Arc<Mutex<Sender>>>,
    /// The number of ended connections.
    gone: usize,
    ended: bool,
    /// Whoever is not there yet is not waited for.
    hurry: bool,
}

impl Members {
    pub fn new(expected: usize) -> Self {
        Self { expected, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Keeps a member's connection until it ends.
    pub fn serve(&self, index: usize, name: &str, sender: Sender, receiver: &mut Receiver) {
        let sender = Arc::new(Mutex::new(sender));
        let ended = {
            let mut state = self.lock();
            state.connected.insert(index, sender.clone());
            state.ended
        };
        self.changed.notify_all();
        if ended {
            // A failure is a closed connection: received below.
            let _ = message::send(&sender, &FromHost::JobEnded);
        }
        let beating = beat(sender);
        // A member says nothing, and closes its end.
        let _ = receiver.receive();
        drop(beating);
        let mut state = self.lock();
        state.connected.remove(&index);
        state.gone += 1;
        if !state.ended {
            eprintln!("gpu-run: host {name} is lost");
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Tells all members of the job's end.
    pub fn end(&self) {
        let connected: Vec<_> = {
            let mut state = self.lock();
            state.ended = true;
            state.connected.values().cloned().collect()
        };
        for sender in connected {
            let _ = message::send(&sender, &FromHost::JobEnded);
        }
    }

    /// The pod is to end: absent hosts are not waited for.
    pub fn hurry(&self) {
        self.lock().hurry = true;
        self.changed.notify_all();
    }

    /// Waits for absent members until a time, and for told ones to end their steps.
    pub fn wait_until_told(&self, until: Instant, kill_wait: Duration) {
        let mut state = self.lock();
        let told = Instant::now();
        let mut said = false;
        loop {
            let missing = self.expected.saturating_sub(state.gone + state.connected.len());
            let until =
                if missing > 0 && !state.hurry { until } else { told + kill_wait + Duration::from_secs(5) };
            let left = until.saturating_duration_since(Instant::now());
            if state.gone >= self.expected || left.is_zero() {
                return;
            }
            if missing > 0 && !said {
                eprintln!("gpu-run: waiting for {missing} hosts, to tell them that the job has ended");
                said = true;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends signs of life, until the returned value is dropped or the connection ends.
pub fn beat(sender: Arc<Mutex<Sender>>) -> std::sync::mpsc::Sender<()> {
    let (stop, stopped) = std::sync::mpsc::channel();
    thread::spawn(move || {
        while stopped.recv_timeout(HEARTBEAT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            if message::send(&sender, &FromHost::Alive).is_err() {
                return;
            }
        }
    });
    stop
}

/// On the other hosts: returns at the job's end. Index 0 takes the connection's end for this host's.
///
/// # Errors
/// Index 0 does not come, or is lost.
pub fn follow(job: &Job) -> Result<Channel> {
    let name = &job.first().name;
    let (sender, mut receiver) = connect::connect(job, 0, "gpu-run")?;
    let lost = || format!("host {name}, which runs the job, is lost");
    receiver.silence_allowed(Some(SILENCE)).with_context(lost)?;
    let sender = Mutex::new(sender);
    message::send(&sender, &Request::Member(job.index)).with_context(lost)?;
    loop {
        match message::receive(&mut receiver).with_context(lost)? {
            Some(Frame::Control(FromHost::JobEnded)) => break,
            Some(_) => {}
            None => bail!(lost()),
        }
    }
    Ok((sender.into_inner().unwrap_or_else(PoisonError::into_inner), receiver))
}
