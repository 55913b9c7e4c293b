//! Progress reports for a waiting person.

use std::{sync::Arc, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// An event while tools are built or a cluster starts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A missing tool is being built; `expected` is the time of a full build on two processors of another machine.
    Building {
        /// Name and version of the tool.
        tool: String,
        /// Rough duration.
        expected: Duration,
    },
    /// Another process builds the tool.
    WaitingFor {
        /// Name and version of the tool.
        tool: String,
    },
    /// A tool is built.
    Built {
        /// Name and version of the tool.
        tool: String,
        /// Build duration.
        took: Duration,
    },
    /// A phase of a cluster's start has ended.
    Phase {
        /// Name of the phase.
        name: &'static str,
        /// Time since the start began.
        after: Duration,
    },
}

/// Receives [`Event`]s, from any thread.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(&Event) + Send + Sync>);

impl Progress {
    /// Calls `report` for each event.
    pub fn new(report: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    /// No reports.
    pub fn silent() -> Self {
        Self::new(|_| {})
    }

    /// Prints a line on standard error for each built tool, with a spinner during the build; phases are not shown.
    pub fn terminal() -> Self {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]") {
            bar.set_style(style);
        }
        Self::new(move |event| match event {
            Event::Building { tool, expected } => {
                let message = format!("building {tool} (once; about {} s)", expected.as_secs());
                if bar.is_hidden() {
                    eprintln!("{message}");
                }
                bar.reset();
                bar.set_message(message);
                bar.enable_steady_tick(Duration::from_millis(120));
            }
            Event::WaitingFor { tool } => eprintln!("waiting for another process that builds {tool}"),
            Event::Built { tool, took } => {
                bar.disable_steady_tick();
                bar.finish_and_clear();
                eprintln!("built {tool} in {:.1} s", took.as_secs_f64());
            }
            Event::Phase { .. } => {}
        })
    }

    /// Reports one event.
    pub fn report(&self, event: &Event) {
        (self.0)(event);
    }
}

impl Default for Progress {
    /// [`Progress::terminal`], so that nobody waits minutes without a message.
    fn default() -> Self {
        Self::terminal()
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Progress")
    }
}
