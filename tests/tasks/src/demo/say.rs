//! Lines for people: on standard output; with `--output json`, which has one line of JSON there, on standard error.

use std::fmt::Arguments;
use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether standard output is for a program.
static JSON: AtomicBool = AtomicBool::new(false);

/// Leaves standard output to a program.
pub fn beside_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// Where lines for people go, and whether it is a terminal.
pub fn out() -> (Box<dyn Write>, bool) {
    if JSON.load(Ordering::Relaxed) {
        (Box::new(io::stderr()), io::stderr().is_terminal())
    } else {
        (Box::new(io::stdout()), io::stdout().is_terminal())
    }
}

/// Prints a line. A reader that is gone does not end the demo: its cluster is removed first.
pub fn line(text: Arguments<'_>) {
    let _ = writeln!(out().0, "{text}");
}

/// As `println!`, for people.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::demo::say::line(format_args!($($text)*))
    };
}

pub(crate) use say;
