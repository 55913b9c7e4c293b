//! The tasks' input.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    channel::Sender,
    layout::Layout,
    message::{self, Stream},
};

/// Read at once. Each task has taken a piece before the next is read: no more than this is kept.
const PIECE: usize = 64 << 10;

/// srun(1), `--input`.
#[derive(Debug)]
pub enum Source {
    /// Standard input, for all tasks.
    All,
    None,
    /// Standard input, for one task.
    One(u32),
    /// A file, for all tasks.
    File(File),
}

/// Sends input to the tasks.
pub struct Input {
    source: Source,
    /// The hosts of the reading tasks.
    hosts: BTreeMap<u32, Arc<Mutex<Sender>>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Tasks without the last piece yet.
    taking: BTreeSet<u32>,
    /// Tasks with a closed input.
    closed: BTreeSet<u32>,
}

impl Source {
    /// `tasks` is the number of tasks.
    pub fn parse(text: &str, tasks: u32) -> Result<Self> {
        match (text, text.parse::<u32>()) {
            ("all", _) => Ok(Self::All),
            ("none", _) => Ok(Self::None),
            (_, Ok(task)) => {
                ensure!(task < tasks, "--input {task}: the step has the tasks 0 to {}", tasks - 1);
                Ok(Self::One(task))
            }
            _ => Ok(Self::File(File::open(text).with_context(|| format!("failed to read {text}"))?)),
        }
    }

    /// Whether a task has anything to read.
    pub fn reaches(&self, task: u32) -> bool {
        match self {
            Self::All | Self::File(_) => true,
            Self::None => false,
            Self::One(one) => *one == task,
        }
    }
}

impl Input {
    pub fn new(source: Source, layout: &Layout, hosts: &[Arc<Mutex<Sender>>]) -> Self {
        let reached = layout.of_tasks().into_iter().filter(|(task, _)| source.reaches(*task));
        let hosts = reached.map(|(task, host)| (task, hosts[host].clone())).collect();
        Self { source, hosts, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Reads and sends, to the input's end.
    pub fn pump(&self) {
        let mut buffer = vec![0; PIECE];
        loop {
            let read = match &self.source {
                Source::All | Source::One(_) => io::stdin().read(&mut buffer),
                Source::File(file) => (&*file).read(&mut buffer),
                Source::None => return,
            };
            // Unreadable input ends, as a pipe without a writer.
            let read = read.unwrap_or(0);
            let open: Vec<u32> = {
                let mut state = self.lock();
                let open = self.hosts.keys().copied().filter(|task| !state.closed.contains(task));
                let open: Vec<u32> = open.collect();
                state.taking = open.iter().copied().collect();
                open
            };
            for task in &open {
                // A failure is a lost host.
                if message::send_data(&self.hosts[task], *task, Stream::Input, &buffer[..read]).is_err() {
                    self.closed(*task);
                }
            }
            if read == 0 || open.is_empty() {
                return;
            }
            let mut state = self.lock();
            while !state.taking.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// A task has taken the last piece.
    pub fn taken(&self, task: u32) {
        self.lock().taking.remove(&task);
        self.changed.notify_all();
    }

    /// A task reads no more.
    pub fn closed(&self, task: u32) {
        let mut state = self.lock();
        state.taking.remove(&task);
        state.closed.insert(task);
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
