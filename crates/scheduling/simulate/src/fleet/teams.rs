//! What teams had in a run with GpuQuotas.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tessera_api::fleet_view::TeamView;
use tessera_api::gpu_quota::Unit;
use tessera_decide::{AmountSummary, QuotaSummary};

use super::summary::quantile;
use super::{PodOutcome, RunReport, Workload};

/// Teams in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct TeamsReport {
    /// By name of the GpuQuota; at the end, without a name, the pods in no quota, if there are any.
    pub teams: Vec<TeamReport>,
    /// Hours of free cards while a pod waited for room: not for a limit or budget of its team.
    pub idle_card_hours: f64,
}

/// A team in a run. Figures include the teams whose parent it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TeamReport {
    /// Name of the GpuQuota.
    pub name: String,
    /// The team's namespaces.
    pub namespaces: BTreeSet<String>,
    /// In the order of the GpuQuota.
    pub amounts: Vec<AmountReport>,
    /// Number of evictions of its pods.
    pub evictions: usize,
    /// Hours of a card that evicted pods ran in vain.
    pub taken_back_card_hours: f64,
}

/// Use of an amount, in millionths of a card or in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct AmountReport {
    /// Name of the amount.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// The guarantee.
    pub guaranteed: u64,
    /// What was used, mean over the run.
    pub used: u64,
    /// The part of `used` beyond the guarantee, mean over the run.
    pub borrowed: u64,
}

/// Waiting of a team's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Number of pods.
    pub pods: usize,
    /// Pods that still wait at the end.
    pub never: usize,
    /// Waiting time of the placed pods: median, and 95th percentile.
    pub waited: [Duration; 2],
}

impl TeamReport {
    /// Waiting of the team's pods in a run of the same workload, with or without quotas.
    #[must_use]
    pub fn waits(&self, workload: &Workload, report: &RunReport) -> Waits {
        let pods: Vec<usize> =
            (0..workload.pods.len()).filter(|pod| self.namespaces.contains(workload.key(*pod).0)).collect();
        let waited = |pod: &usize| report.pods[*pod].waited(workload.pods[*pod].at);
        let mut waits: Vec<Duration> = pods.iter().filter_map(waited).collect();
        waits.sort_unstable();
        let waited = [quantile(&waits, 50), quantile(&waits, 95)];
        Waits { pods: pods.len(), never: pods.len() - waits.len(), waited }
    }
}

/// Teams at some time.
pub(super) struct Sample {
    pub quotas: BTreeMap<String, QuotaSummary>,
    /// Whether a pod waits, and not for a limit or budget of its team.
    pub waits_for_room: bool,
}

/// Sums over a run, in seconds.
#[derive(Default)]
pub(super) struct Means {
    /// The last sample, its time, and the free cards then.
    last: Option<(Duration, Sample, f64)>,
    /// Use and borrowed use by quota and amount.
    sums: BTreeMap<String, Vec<[f64; 2]>>,
    idle: f64,
}

impl Means {
    /// Teams from `now` on, with so many free cards.
    pub fn advance(&mut self, now: Duration, sample: Sample, free: f64) {
        if let Some((since, before, free)) = self.last.replace((now, sample, free)) {
            let seconds = now.saturating_sub(since).as_secs_f64();
            for (name, quota) in &before.quotas {
                let sums = self.sums.entry(name.clone()).or_default();
                sums.resize(quota.amounts.len(), [0.0; 2]);
                for (sum, amount) in sums.iter_mut().zip(&quota.amounts) {
                    sum[0] += amount.used as f64 * seconds;
                    sum[1] += amount.borrowed as f64 * seconds;
                }
            }
            if before.waits_for_room {
                self.idle += free * seconds;
            }
        }
    }

    /// The report, with the pods of teams by their namespaces.
    pub fn report(self, views: Vec<TeamView>, workload: &Workload, outcomes: &[PodOutcome]) -> TeamsReport {
        let last = self.last.as_ref();
        let seconds = last.map_or(0.0, |(now, ..)| now.as_secs_f64());
        let mut others: BTreeSet<&str> = workload.namespaces();
        let mut teams = Vec::new();
        for team in &views {
            let is_own =
                |other: &&TeamView| other.name == team.name || other.parent.as_ref() == Some(&team.name);
            let namespaces: BTreeSet<String> =
                views.iter().filter(is_own).flat_map(|own| own.namespaces.iter().cloned()).collect();
            others.retain(|name| !namespaces.contains(*name));
            let sums = self.sums.get(&team.name);
            let amounts =
                last.and_then(|(_, sample, _)| sample.quotas.get(&team.name)).map(|quota| &quota.amounts);
            let amount = |(place, amount): (usize, &AmountSummary)| {
                let sum = sums.and_then(|sums| sums.get(place)).copied().unwrap_or_default();
                let [used, borrowed] =
                    sum.map(|sum| if seconds > 0.0 { (sum / seconds).round() as u64 } else { 0 });
                let AmountSummary { name, unit, guaranteed, .. } = amount;
                AmountReport { name: name.clone(), unit: *unit, guaranteed: *guaranteed, used, borrowed }
            };
            let amounts = amounts.into_iter().flatten().enumerate().map(amount).collect();
            teams.push(TeamReport { name: team.name.clone(), namespaces, amounts, ..TeamReport::default() });
        }
        if !others.is_empty() {
            let namespaces = others.into_iter().map(str::to_owned).collect();
            teams.push(TeamReport { namespaces, ..TeamReport::default() });
        }
        for team in &mut teams {
            for (pod, outcome) in outcomes.iter().enumerate().filter(|(_, outcome)| !outcome.lost.is_empty())
            {
                if team.namespaces.contains(workload.key(pod).0) {
                    team.evictions += outcome.lost.len();
                    team.taken_back_card_hours += outcome.lost_card_hours;
                }
            }
        }
        TeamsReport { teams, idle_card_hours: self.idle / 3600.0 }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::PolicyName;
    use crate::fleet::{Demands, Fleet, Quotas, Run};

    const HOUR: u64 = 3600;

    fn play(list: &str, quotas: &[serde_json::Value]) -> (Workload, RunReport) {
        let fleet = Fleet::new(&["1xdgx-h100".parse().unwrap()]).unwrap();
        let mut workload = Workload::of_text(list, &fleet);
        let quotas = quotas.iter().map(|quota| serde_json::from_value(quota.clone()).unwrap());
        workload.quotas = Quotas::new(quotas.collect(), BTreeMap::new());
        let demands = Demands::of(&fleet, &workload);
        let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at: None, wishes: &[] };
        let report = run.run(PolicyName::Tessera, 1, |_| ());
        (workload, report)
    }

    fn quota(name: &str, guaranteed: u32, more: serde_json::Value) -> serde_json::Value {
        let mut spec = json!({
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } },
            "amounts": [{ "name": "cards", "unit": "Cards", "guaranteed": guaranteed }],
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "metadata": { "name": name }, "spec": spec })
    }

    fn began(workload: &Workload, report: &RunReport) -> BTreeMap<String, u64> {
        let pods = workload.pods.iter().zip(&report.pods);
        pods.map(|(pod, outcome)| (pod.name.clone(), outcome.began.unwrap().as_secs())).collect()
    }

    /// A gang of four borrows the cards of another team, which takes them back ten minutes after the gang's start. The gang begins anew
    /// when the others have ended.
    #[test]
    fn borrowed_cards_are_taken_back() {
        let list = "name,namespace,gpu,count,at,duration,gang\nown,one,4,1,0,4h,\ngang,one,1,4,1m,1h,4\n\
                    late,two,2,2,2m,2h,\nother,three,1,1,3m,1h,\n";
        let least = json!({ "minRuntimeSeconds": 600 });
        let (workload, report) = play(list, &[quota("one", 4, least.clone()), quota("two", 4, least)]);
        let began = began(&workload, &report);
        assert_eq!([began["own-0"], began["late-0"], began["late-1"]], [0, 660, 660], "{began:?}");
        assert_eq!(
            [0, 1, 2, 3].map(|place| began[&format!("gang-{place}")]),
            [660 + 2 * HOUR; 4],
            "{began:?}"
        );
        let teams = report.teams.as_ref().unwrap();
        let names: Vec<&str> = teams.teams.iter().map(|team| team.name.as_str()).collect();
        assert_eq!(names, ["one", "two", ""]);
        let one = &teams.teams[0];
        assert_eq!((one.evictions, one.taken_back_card_hours), (4, 4.0 / 6.0));
        let gang = &report.pods[workload.pods.iter().position(|pod| pod.name == "gang-0").unwrap()];
        assert_eq!(gang.lost, [Duration::from_secs(60)..Duration::from_secs(660)]);
        // The wait before the first start, and the one after the eviction.
        assert_eq!(gang.waited(Duration::from_secs(60)).unwrap().as_secs(), 2 * HOUR);
        let waits = teams.teams[1].waits(&workload, &report);
        assert_eq!(waits, Waits { pods: 2, never: 0, waited: [Duration::from_secs(540); 2] });
        let hours = report.end.as_secs_f64() / 3600.0;
        let borrowed = (4.0 / 6.0 + 4.0) / hours * 1e6;
        assert!((one.amounts[0].borrowed as f64 - borrowed).abs() < 1.0, "{one:?} {borrowed}");
    }

    /// Nobody waits for room where a limit alone holds pods up, and cards are free.
    #[test]
    fn cards_that_a_limit_keeps_free_are_not_idle() {
        let list = "name,namespace,gpu,count,at,duration\na,one,2,4,0,1h\n";
        let mut limited = quota("one", 0, json!({}));
        limited["spec"]["amounts"][0]["limit"] = json!(4);
        let (workload, report) = play(list, &[limited]);
        assert_eq!(began(&workload, &report).into_values().max(), Some(HOUR));
        assert_eq!(report.teams.unwrap().idle_card_hours, 0.0);
        let list = "name,namespace,gpu,count,at,duration\na,one,6,2,0,1h\n";
        let (_, report) = play(list, &[quota("one", 0, json!({}))]);
        assert_eq!(report.teams.unwrap().idle_card_hours, 2.0);
    }
}
