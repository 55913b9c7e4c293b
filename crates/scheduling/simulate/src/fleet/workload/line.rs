//! A line of a list.

use std::time::Duration;

use super::Ask;
use crate::openb::table::Row;

/// Longest name: a pod's name has a number appended, a claim's a word.
const LONGEST_NAME: usize = 40;

/// Longest time: a hundred years.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Identical pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Prefix of the pods' names.
    pub name: String,
    /// Namespace of the pods; `None` for the usual one.
    pub(super) namespace: Option<String>,
    /// Number of pods.
    pub count: usize,
    /// Each pod's request.
    pub(super) ask: Ask,
    /// Bytes: a minimum for whole cards, exact for a share.
    pub(super) gpu_memory: Option<u64>,
    /// Thousandths of a core.
    pub(super) cpu_milli: u64,
    /// MiB.
    pub(super) memory_mib: u64,
    /// Arrival of the first pod.
    pub(super) at: Duration,
    /// Interval between pods, or between gangs.
    pub(super) every: Duration,
    /// Run time of each pod; `None` for ever.
    pub(super) duration: Option<Duration>,
    pub(super) priority: i32,
    /// Number of pods that start together.
    pub(super) gang: Option<u32>,
    /// Percent of its devices that each pod uses.
    pub(super) busy: Option<u8>,
    /// Whether each pod may move.
    pub(super) is_movable: bool,
}

impl Line {
    /// A single pod with one card, arriving at once and running for ever.
    pub(super) fn one(name: String) -> Self {
        let (at, every) = (Duration::ZERO, Duration::ZERO);
        Self {
            name,
            namespace: None,
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
            busy: None,
            is_movable: false,
        }
    }
}

/// The namespace of a line, if it names one.
pub(super) fn namespace(row: &Row<'_>) -> Result<Option<String>, String> {
    match row.text_or_nothing("namespace") {
        "" => Ok(None),
        name if tessera_api::limits::is_dns_label(name) => Ok(Some(name.to_owned())),
        other => Err(format!("namespace is {other:?}; it must be lower-case letters, digits and -")),
    }
}

/// The name of a line.
pub(super) fn name(row: &Row<'_>) -> Result<String, String> {
    let name = row.text("name").map_err(|problem| problem.to_string())?;
    if name.len() > LONGEST_NAME || !tessera_api::limits::is_dns_label(name) {
        return Err(format!(
            "name is {name:?}; it must be up to {LONGEST_NAME} lower-case letters, digits and -, as in pod names"
        ));
    }
    Ok(name.to_owned())
}
