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
    /// Percent of the cards in use, mean over the run: what pods hold by the share of it that they use.
    pub used: f64,
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
            mean: percent(mean_of(&report.taken, 0.0, report.end.as_secs_f64())),
            used: percent(mean_of(&report.used, 0.0, report.end.as_secs_f64())),
            most: percent(report.taken.iter().map(|(_, taken)| *taken).fold(0.0, f64::max)),
            end: percent(report.taken.last().map_or(0.0, |(_, taken)| *taken)),
            over_time: (0..spans)
                .map(|part| percent(mean_of(&report.taken, span(part), span(part + 1))))
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

/// Mean of a series between two times in seconds; for an empty interval, its last number.
fn mean_of(series: &[(Duration, f64)], from: f64, to: f64) -> f64 {
    let mut sum = 0.0;
    for (place, (since, number)) in series.iter().enumerate() {
        let until = series.get(place + 1).map_or(to, |(until, _)| until.as_secs_f64());
        sum += number * (until.min(to) - since.as_secs_f64().max(from)).max(0.0);
    }
    if to > from { sum / (to - from) } else { series.last().map_or(0.0, |(_, number)| *number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_weighted_by_time() {
        let at = Duration::from_secs;
        let series = [(at(0), 0.0), (at(10), 4.0), (at(30), 1.0)];
        assert_eq!(mean_of(&series, 0.0, 40.0), (4.0 * 20.0 + 10.0) / 40.0);
        assert_eq!(mean_of(&series, 5.0, 15.0), 2.0);
        assert_eq!(mean_of(&series, 40.0, 40.0), 1.0);
    }

    /// A claim that keeps a card busy for half of the run's time, one that uses a quarter of two, and one of unknown use.
    #[test]
    fn what_is_used_is_less_than_what_is_allocated() {
        let fleet = Fleet::new(&["1xdgx-h100".parse().unwrap()]).unwrap();
        let list = "name,gpu,duration,busy\na,1,50s,100%\nb,2,100s,25%\nc,1,100s,\n";
        let workload = Workload::of_text(list, &fleet);
        let demands = crate::fleet::Demands::of(&fleet, &workload);
        let run = crate::fleet::Run {
            fleet: &fleet,
            workload: &workload,
            demands: &demands,
            at: None,
            wishes: &[],
        };
        let report = run.run(crate::PolicyName::Tessera, 1, |_| ());
        let summary = Summary::of(&fleet, &workload, &report);
        assert_eq!((summary.mean, summary.used), (3.5 / 8.0 * 100.0, 2.0 / 8.0 * 100.0));
    }
}
