//! The tasks of a step as `srun` follows them, and its exit code.

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use super::options::Options;
use crate::message::Ending;

/// Events of a step.
pub enum Event {
    /// A task ended.
    Ended(u32, Ending),
    /// A host says something to the user.
    Note(usize, String),
    /// A host's connection ended; its running tasks are lost.
    Lost(usize, String),
    /// Output cannot be written.
    Output(std::io::Error),
    /// srun got a signal.
    Signal(Signal),
}

/// The tasks of a step.
pub struct Tasks {
    /// By place.
    names: Vec<String>,
    /// Running tasks, with their host's place.
    running: BTreeMap<u32, usize>,
    kill_on_bad_exit: bool,
    wait: Option<Duration>,
    kill_wait: Duration,
    /// When the others are ended; then when they are killed.
    end_at: Option<Instant>,
    kill_at: Option<Instant>,
    /// The others have been told to end.
    ending: bool,
    code: u8,
}

impl Tasks {
    /// `running` has the place of each task's host.
    pub fn new(
        names: Vec<String>,
        running: BTreeMap<u32, usize>,
        options: &Options,
        kill_wait: Duration,
    ) -> Self {
        Self {
            names,
            running,
            kill_on_bad_exit: options.kill_on_bad_exit == 1,
            wait: (options.wait > 0).then(|| Duration::from_secs(options.wait.into())),
            kill_wait,
            end_at: None,
            kill_at: None,
            ending: false,
            code: 0,
        }
    }

    /// Follows the tasks to their end, and returns the highest exit code; tasks ended for another's failure do not count.
    pub fn run(mut self, events: &Receiver<Event>, signal: &dyn Fn(Signal)) -> u8 {
        while !self.running.is_empty() {
            let next = [self.end_at, self.kill_at].into_iter().flatten().min();
            let wait = next.map_or(Duration::MAX, |next| next.saturating_duration_since(Instant::now()));
            match events.recv_timeout(wait) {
                Ok(event) => self.take(event, signal),
                Err(RecvTimeoutError::Timeout) if self.end_at.take().is_some() => {
                    eprintln!(
                        "srun: error: the first task ended {} s ago",
                        self.wait.unwrap_or_default().as_secs()
                    );
                    self.end(signal);
                    self.code = self.code.max(1);
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.kill_at = None;
                    signal(Signal::SIGKILL);
                }
                // All threads have ended: nothing more can be known.
                Err(RecvTimeoutError::Disconnected) => return self.code.max(1),
            }
        }
        self.code
    }

    fn take(&mut self, event: Event, signal: &dyn Fn(Signal)) {
        match event {
            Event::Ended(task, ending) => {
                if let Some(place) = self.running.remove(&task) {
                    self.ended(task, place, ending, signal);
                }
            }
            Event::Note(place, note) => eprintln!("srun: error: {}: {note}", self.names[place]),
            Event::Lost(place, why) => {
                let before = self.running.len();
                self.running.retain(|_, of| *of != place);
                let tasks = before - self.running.len();
                if tasks > 0 {
                    eprintln!("srun: error: {} is lost with {tasks} tasks: {why}", self.names[place]);
                    self.code = self.code.max(1);
                    self.end(signal);
                }
            }
            Event::Output(error) => {
                if !self.ending {
                    eprintln!("srun: error: cannot write output: {error}");
                    self.code = self.code.max(1);
                }
                self.end(signal);
            }
            Event::Signal(of) => signal(of),
        }
    }

    fn ended(&mut self, task: u32, place: usize, ending: Ending, signal: &dyn Fn(Signal)) {
        let (name, told) = (&self.names[place], self.ending);
        match ending {
            Ending::Code(0) => {}
            Ending::Code(code) => {
                eprintln!("srun: error: {name}: task {task}: Exited with exit code {code}");
            }
            Ending::Signal(signal) => {
                let known = Signal::try_from(signal);
                let known = known.map_or_else(|_| signal.to_string(), |known| known.to_string());
                eprintln!("srun: error: {name}: task {task}: ended by {known}");
            }
        }
        if ending != Ending::Code(0) && !told {
            self.code = self.code.max(ending.code());
            if self.kill_on_bad_exit {
                self.end(signal);
            }
        }
        if !self.ending {
            self.end_at = self.end_at.or(self.wait.map(|wait| Instant::now() + wait));
        }
    }

    /// Ends all tasks.
    fn end(&mut self, signal: &dyn Fn(Signal)) {
        self.end_at = None;
        if !self.ending && !self.running.is_empty() {
            self.ending = true;
            eprintln!("srun: error: ending the step's other tasks");
            signal(Signal::SIGTERM);
            self.kill_at = Some(Instant::now() + self.kill_wait);
        }
    }
}
