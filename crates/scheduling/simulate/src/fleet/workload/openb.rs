//! Pods of openb's trace, each with times of its own, in place of groups of identical pods.

use std::time::Duration;

use super::Ask;
use super::line::{LONGEST, Line, name};
use crate::openb::table::Row;

/// Required columns. `is_trace` tells a trace from a list by one of them.
pub(super) const NEEDED: [&str; 5] = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];

/// Whether these are the columns of a trace.
pub(super) fn is_trace(header: &str) -> bool {
    header.split(',').any(|column| column.trim() == "num_gpu")
}

/// Reason for leaving out a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LeftOut {
    /// The pod requests no cards.
    WithoutCards,
    /// The pod ended when it began.
    Over,
}

impl LeftOut {
    /// The reason in words, for `count` pods.
    pub(super) fn words(self, count: usize) -> String {
        let why = match self {
            Self::WithoutCards => "ask for no cards",
            Self::Over => "ended at their start",
        };
        format!("pods left out because they {why}: {count}")
    }
}

/// A pod's line; times count from the beginning of the trace.
pub(super) fn read(row: &Row<'_>) -> Result<Result<Line, LeftOut>, String> {
    let number = |column| row.number(column).map_err(|problem| problem.to_string());
    let seconds = |column: &'static str| match row.text_or_nothing(column) {
        "" => Ok(None),
        _ => number(column).map(|seconds| Some(Duration::from_secs(seconds).min(LONGEST))),
    };
    let name = name(row)?;
    let (cpu_milli, memory_mib) = (number("cpu_milli")?, number("memory_mib")?);
    let (cards, thousandths) = (number("num_gpu")?, number("gpu_milli")?);
    let ask = match (cards, thousandths) {
        (0, _) => return Ok(Err(LeftOut::WithoutCards)),
        (1, part @ 1..1000) => Ask::Share(part.div_ceil(10) as u32),
        (1..=32, 1000) => Ask::Cards(cards as u32),
        _ => {
            return Err(format!(
                "gpu_milli is {thousandths} with num_gpu {cards}; 1 to 1000 of one card, or 1000 of each of up to 32"
            ));
        }
    };
    let at = seconds("creation_time")?.unwrap_or_default();
    let began = seconds("scheduled_time")?.unwrap_or(at);
    let duration = match seconds("deletion_time")? {
        Some(end) if end < began => {
            return Err(format!("deletion_time is {} s before the start", (began - end).as_secs()));
        }
        Some(end) if end == began => return Ok(Err(LeftOut::Over)),
        end => end.map(|end| end - began),
    };
    let line = Line { ask, cpu_milli, memory_mib, at, duration, ..Line::one(name) };
    Ok(Ok(line))
}
