//! Figures of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Fleet, RunReport, Workload};

/// Number of equal parts of the run in [`Summary::over_time`].
pub const SPANS: usize = 48;

/// Figures of a run. Percentages are of the fleet's cards. A part of a card counts as its fraction of the card's compute or memory,
/// whichever is larger.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Pods with devices; pods of a gang count only if the whole gang was placed.
    pub placed: usize,
    /// Percent of the cards allocated, mean over the run.
    pub mean: f64,
    /// Highest percentage at any time.
    pub most: f64,
    /// Percentage at the end.
    pub end: f64,
    /// Mean of each of [`SPANS`] equal parts of the run; empty for a run of no duration.
    pub over_time: Vec<f64>,
    /// Waiting time of the placed pods: mean, 95th percentile, longest.
    pub waited: [Duration; 3],
    /// Time of the last event.
    pub done_after: Duration,
    /// Most cards at least partly allocated at once, by product name.
    pub cards_used: BTreeMap<String, usize>,
    /// Most nodes with such cards at once.
    pub nodes_used: usize,
    /// Percent of the free cards at the snapshot that a typical pod of the workload could not use; `None` without arrivals.
    pub fragmentation: Option<f64>,
}

impl Summary {
    /// Figures of this run.
    #[must_use]
    pub fn of(fleet: &Fleet, workload: &Workload, report: &RunReport) -> Self {
        let cards = fleet.cards().max(1) as f64;
        let percent = |taken: f64| taken / cards * 100.0;
        let began = report.pods.iter().zip(&workload.pods);
        let mut waits: Vec<Duration> = began.filter_map(|(outcome, pod)| outcome.waited(pod.at)).collect();
        waits.sort_unstable();
        let mean = |waits: &[Duration]| {
            let sum: f64 = waits.iter().map(Duration::as_secs_f64).sum();
            Duration::from_secs_f64(sum / waits.len().max(1) as f64)
        };
        let span = |part: usize| report.end.as_secs_f64() * part as f64 / SPANS as f64;
        let takes_time = report.end > Duration::ZERO;
        let spans = if takes_time { SPANS } else { 0 };
        Self {
            placed: waits.len(),
            mean: percent(mean_taken(report, 0.0, report.end.as_secs_f64())),
            most: percent(report.taken.iter().map(|(_, taken)| *taken).fold(0.0, f64::max)),
            end: percent(report.taken.last().map_or(0.0, |(_, taken)| *taken)),
            over_time: (0..spans)
                .map(|part| percent(mean_taken(report, span(part), span(part + 1))))
                .collect(),
            waited: [mean(&waits), quantile(&waits, 95), waits.last().copied().unwrap_or_default()],
            done_after: report.end,
            cards_used: report.cards_used.clone(),
            nodes_used: report.nodes_used,
            fragmentation: report.fragmentation,
        }
    }
}

/// The smallest value not exceeded by `percent` of the sorted values.
pub(super) fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or_default()
}

/// Mean cards taken between two times in seconds; for an empty interval, the cards taken at its time.
fn mean_taken(report: &RunReport, from: f64, to: f64) -> f64 {
    let mut sum = 0.0;
    for (place, (since, taken)) in report.taken.iter().enumerate() {
        let until = report.taken.get(place + 1).map_or(to, |(until, _)| until.as_secs_f64());
        sum += taken * (until.min(to) - since.as_secs_f64().max(from)).max(0.0);
    }
    if to > from { sum / (to - from) } else { report.taken.last().map_or(0.0, |(_, taken)| *taken) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_weighted_by_time() {
        let at = Duration::from_secs;
        let report = RunReport {
            pods: Vec::new(),
            taken: vec![(at(0), 0.0), (at(10), 4.0), (at(30), 1.0)],
            end: at(40),
            cards_used: BTreeMap::new(),
            nodes_used: 0,
            holdings: Default::default(),
            at: at(40),
            wishes: Vec::new(),
            fragmentation: None,
            teams: None,
        };
        assert_eq!(mean_taken(&report, 0.0, 40.0), (4.0 * 20.0 + 10.0) / 40.0);
        assert_eq!(mean_taken(&report, 5.0, 15.0), 2.0);
        assert_eq!(mean_taken(&report, 40.0, 40.0), 1.0);
    }
}
