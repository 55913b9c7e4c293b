//! The job's end: index 0 tells the other hosts by a connection to each.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    channel::{Receiver, Sender},
    job::{DISRUPTED, Job},
    message::{self, Frame, FromHost, Request},
    srun::connect,
};

/// A host is heard this often, and given up after this long in silence.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
pub const SILENCE: Duration = Duration::from_secs(60);

/// The other hosts, on index 0; on the others their connection to index 0.
pub struct Members {
    expected: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// Open until this process ends: index 0 takes the connection's end for this host's.
    own: OnceLock<Mutex<Sender>>,
}

#[derive(Default)]
struct State {
    connected: BTreeMap<usize, Arc<Mutex<Sender>>>,
    /// The number of ended connections.
    gone: usize,
    /// Whether one was, before the job's end.
    lost: bool,
    /// With the exit code of members.
    ended: Option<u8>,
    /// Whoever is not there yet is not waited for.
    hurry: bool,
    /// On the other hosts: index 0 knows this one.
    known: bool,
}

impl Members {
    pub fn new(expected: usize) -> Self {
        Self { expected, state: Mutex::default(), changed: Condvar::new(), own: OnceLock::new() }
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
        if let Some(code) = ended {
            // A failure is a closed connection: received below.
            let _ = message::send(&sender, &FromHost::JobEnded(code));
        } else {
            let _ = message::send(&sender, &FromHost::Alive);
        }
        let beating = beat(sender);
        // A member says nothing, and closes its end.
        let _ = receiver.receive();
        drop(beating);
        let mut state = self.lock();
        state.connected.remove(&index);
        state.gone += 1;
        if state.ended.is_none() {
            state.lost = true;
            eprintln!("gpu-run: host {name} is lost");
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Tells all members of the job's end, and their exit code.
    pub fn end(&self, code: u8) {
        let connected: Vec<_> = {
            let mut state = self.lock();
            state.ended = Some(code);
            state.connected.values().cloned().collect()
        };
        for sender in connected {
            let _ = message::send(&sender, &FromHost::JobEnded(code));
        }
    }

    /// The pod is to end: absent hosts are not waited for.
    pub fn hurry(&self) {
        self.lock().hurry = true;
        self.changed.notify_all();
    }

    /// Whether the pod is to end.
    pub fn hurried(&self) -> bool {
        self.lock().hurry
    }

    /// Waits for absent members until a time, and for told ones to end their steps. True if a member was lost before the job's
    /// end, or does not answer now: its node may have failed.
    pub fn wait_until_told(&self, until: Instant, kill_wait: Duration) -> bool {
        let mut state = self.lock();
        let told = Instant::now();
        let mut said = false;
        loop {
            let missing = self.expected.saturating_sub(state.gone + state.connected.len());
            let until =
                if missing > 0 && !state.hurry { until } else { told + kill_wait + Duration::from_secs(5) };
            let left = until.saturating_duration_since(Instant::now());
            if state.gone >= self.expected || left.is_zero() {
                return state.lost || !state.connected.is_empty();
            }
            if missing > 0 && !said {
                eprintln!("gpu-run: waiting for {missing} hosts, to tell them that the job has ended");
                said = true;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// On the other hosts: the exit code, at the job's end or when index 0 does not come or is lost.
    pub fn follow(&self, job: &Job) -> u8 {
        self.told(job).unwrap_or_else(|error| {
            eprintln!("gpu-run: {error:#}");
            DISRUPTED
        })
    }

    /// On the other hosts: ends the connection to index 0.
    pub fn leave(&self) {
        if let Some(sender) = self.own.get() {
            sender.lock().unwrap_or_else(PoisonError::into_inner).close();
        }
    }

    /// On the other hosts: waits until index 0 knows this one. A host that is evicted before would be no cause of the failure of a step.
    pub fn wait_until_known(&self) {
        let mut state = self.lock();
        while !state.known {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn told(&self, job: &Job) -> Result<u8> {
        let name = &job.first().name;
        let (sender, mut receiver) = connect::connect(job, 0, "gpu-run")?;
        let sender = self.own.get_or_init(|| Mutex::new(sender));
        let lost = || format!("host {name}, which runs the job, is lost");
        receiver.silence_allowed(Some(SILENCE)).with_context(lost)?;
        message::send(sender, &Request::Member(job.index)).with_context(lost)?;
        loop {
            match message::receive(&mut receiver).with_context(lost)? {
                Some(Frame::Control(FromHost::JobEnded(code))) => return Ok(code),
                Some(_) => {
                    self.lock().known = true;
                    self.changed.notify_all();
                }
                None => bail!(lost()),
            }
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
