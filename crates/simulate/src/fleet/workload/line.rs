//! A line of a list.

use std::time::Duration;

use super::Ask;
use crate::openb::table::Row;

/// Longest name: a pod's has a number behind it, a claim's a word.
const LONGEST_NAME: usize = 40;

/// Longest time: a hundred years.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Pods that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The pods are called so, with a number.
    pub name: String,
    /// How many.
    pub count: usize,
    /// What each asks for.
    pub(super) ask: Ask,
    /// Bytes: of whole cards at least, of a share exactly.
    pub(super) gpu_memory: Option<u64>,
    /// Thousandths of a core.
    pub(super) cpu_milli: u64,
    /// MiB.
    pub(super) memory_mib: u64,
    /// When the first arrives.
    pub(super) at: Duration,
    /// Between two of them, or two gangs.
    pub(super) every: Duration,
    /// How long each runs; `None` for ever.
    pub(super) duration: Option<Duration>,
    pub(super) priority: i32,
    /// So many start together.
    pub(super) gang: Option<u32>,
}

impl Line {
    /// A pod that arrives at once and stays, and asks for a card.
    pub(super) fn one(name: String) -> Self {
        let (at, every) = (Duration::ZERO, Duration::ZERO);
        Self {
            name,
            count: 1,
            ask: Ask::Cards(1),
            gpu_memory: None,
            cpu_milli: 0,
            memory_mib: 0,
            at,
            every,
            duration: None,
            priority: 0,
            gang: None,
        }
    }
}

/// The name of a line.
pub(super) fn name(row: &Row<'_>) -> Result<String, String> {
    let name = row.text("name").map_err(|problem| problem.to_string())?;
    if name.len() > LONGEST_NAME || !tessera_api::limits::is_dns_label(name) {
        return Err(format!(
            "name is {name:?}; it must be up to {LONGEST_NAME} lower-case letters, digits and -, as names of pods are"
        ));
    }
    Ok(name.to_owned())
}
