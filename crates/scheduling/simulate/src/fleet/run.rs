//! A workload on a fleet, in virtual time.
//!
//! For all policies alike: arriving pods wait. Fitting pods are placed by priority, then in order of arrival, on arrivals and whenever
//! devices become free. Pods keep their devices to the end, unless a team takes them back, or a pool gives those of idle and movable
//! pods to others. A pod starts once it and all of its gang have their devices.

mod cards_only;
mod ours;
mod state;
mod unused;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use k8s_openapi::api::resource::v1::AllocationResult;

use tessera_api::fleet_view::TeamView;

use super::holdings::Holdings;
use super::teams::{Means, Sample, TeamsReport};
use super::{Demands, Fleet, Workload};
use crate::PolicyName;
use state::State;

/// Rounds without a placement after which no further round is run before the next arrival or end.
const IDLE_LOOKS: usize = 16;

/// End of a run with pods still waiting: a thousand years, within the range of timestamps.
const LAST: Duration = Duration::from_secs(1_000 * 366 * 86_400);

/// A placement of a pod.
struct Placed {
    pod: usize,
    node: usize,
    allocations: Vec<AllocationResult>,
}

/// A change of a pod's place.
enum Change {
    Placed(Placed),
    /// The pod lost its devices, of so many cards' worth, and waits anew. Pods with devices from the beginning are gone.
    Evicted {
        pod: usize,
        cards: f64,
    },
}

/// Chooses places for pods and keeps the state for the choice.
trait Placer {
    /// A pod arrives.
    fn arrive(&mut self, now: Duration, pod: usize);

    /// A placed pod ended.
    fn end(&mut self, now: Duration, pod: usize, holdings: &Holdings);

    /// Places waiting pods, and evicts others for them.
    fn place(&mut self, now: Duration, holdings: &mut Holdings) -> Vec<Change>;

    /// When to call `place` again without an arrival or end.
    fn wake(&self) -> Option<Duration> {
        None
    }

    /// How long after a placement pools may still evict pods; `None` without such pools.
    fn evicts_within(&self) -> Option<Duration> {
        None
    }

    /// Reason why each of these pods waits.
    fn whys(&mut self, pods: &[usize]) -> Vec<String>;

    /// Teams now; `None` without quotas.
    fn teams(&self) -> Option<Sample> {
        None
    }

    /// Names and namespaces of the teams.
    fn team_views(&self) -> Vec<TeamView> {
        Vec::new()
    }

    /// The placer's view of the cluster.
    fn cluster(&self) -> &tessera_cluster::Cluster;
}

/// Result for one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodOutcome {
    /// Time of its placement, and the index of its node.
    pub placed: Option<(Duration, usize)>,
    /// Time at which the pod and all of its gang could start.
    pub began: Option<Duration>,
    /// Runs that an eviction ended. The pod then waits anew, and runs from the beginning.
    pub lost: Vec<Range<Duration>>,
    /// The same in hours of a card.
    pub lost_card_hours: f64,
    /// Why the pod still waited at the end of the run, if so.
    pub why: Option<String>,
}

impl PodOutcome {
    /// How long the pod, which arrived `at` this time, waited for its start, and again after each eviction; `None` for one that never
    /// ran, or waits at the end.
    #[must_use]
    pub fn waited(&self, at: Duration) -> Option<Duration> {
        let lost: Duration = self.lost.iter().map(|run| run.end - run.start).sum();
        Some(self.began?.saturating_sub(at + lost))
    }
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Result of each pod of the workload.
    pub pods: Vec<PodOutcome>,
    /// Cards' worth taken, from each time on.
    pub taken: Vec<(Duration, f64)>,
    /// Cards' worth in use, from each time on.
    pub used: Vec<(Duration, f64)>,
    /// Time of the last event.
    pub end: Duration,
    /// Most cards at least partly taken at once, by product name.
    pub cards_used: BTreeMap<String, usize>,
    /// Most nodes with such cards at once.
    pub nodes_used: usize,
    /// Holders of the cards at [`Run::at`].
    pub holdings: Holdings,
    /// Time of the snapshot.
    pub at: Duration,
    /// Number of pods still fitting at the snapshot, for each wish.
    pub wishes: Vec<usize>,
    /// Percent of the free cards at the snapshot that a typical pod of the workload could not use; `None` without arrivals.
    pub fragmentation: Option<f64>,
    /// What teams had; `None` without quotas.
    pub teams: Option<TeamsReport>,
}

/// A workload on a fleet.
#[derive(Clone, Copy, Debug)]
pub struct Run<'r> {
    /// The fleet.
    pub fleet: &'r Fleet,
    /// Pods to place.
    pub workload: &'r Workload,
    /// The workload's demands on the fleet.
    pub demands: &'r Demands,
    /// Time of the snapshot; `None` for the end.
    pub at: Option<Duration>,
    /// Additional pods to try at the snapshot.
    pub wishes: &'r [super::Wish],
}

impl Run<'_> {
    /// Runs the workload with one of [`PolicyName::of_fleets`]. `progress` is called with the number of arrived pods.
    #[must_use]
    pub fn run(&self, policy: PolicyName, seed: u64, progress: impl FnMut(usize)) -> RunReport {
        self.run_until(LAST, policy, seed, progress)
    }

    /// The same, without what comes after this time.
    #[must_use]
    pub fn run_until(
        &self,
        until: Duration,
        policy: PolicyName,
        seed: u64,
        mut progress: impl FnMut(usize),
    ) -> RunReport {
        let mut placer: Box<dyn Placer + '_> = match policy {
            PolicyName::Tessera => Box::new(ours::Ours::new(self.fleet, self.workload)),
            other => Box::new(cards_only::CardsOnly::new(self, other, seed)),
        };
        let pods = &self.workload.pods;
        let evicts_within = placer.evicts_within();
        let mut state = State::new(self);
        let mut means = Means::default();
        let mut snapshot: Option<Snapshot> = None;
        let (mut arrived, mut idle) = (0, 0);
        let mut now = Duration::ZERO;
        // Rounds without a placement do not extend the run.
        let mut last = now;
        loop {
            let arrival = pods.get(arrived).map(|pod| pod.at);
            let end = state.next_end();
            let may_look = idle < IDLE_LOOKS || evicts_within.is_some_and(|within| now < last + within);
            let wake = placer.wake().filter(|_| may_look).map(|wake| wake.max(now));
            let events = [arrival, end].into_iter().flatten().min();
            let next = events.into_iter().chain(wake).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            if snapshot.is_none() && self.at.is_some_and(|at| at < next) {
                snapshot = Some(self.look(&*placer, &state));
            }
            let is_idle = events.is_none_or(|event| next < event);
            now = next;
            while let Some(pod) = state.end_one(self, now) {
                placer.end(now, pod, &state.holdings);
            }
            while pods.get(arrived).is_some_and(|pod| pod.at <= now) {
                placer.arrive(now, arrived);
                arrived += 1;
            }
            progress(arrived);
            let changes = placer.place(now, &mut state.holdings);
            if is_idle && changes.is_empty() {
                idle += 1;
                continue;
            }
            (idle, last) = (0, now);
            changes.iter().for_each(|change| state.note(now, self, change));
            state.note_taken(now);
            if let Some(sample) = placer.teams() {
                means.advance(now, sample, self.fleet.cards() as f64 - state.holdings.taken());
            }
        }
        let waiting = state.outcomes.iter().enumerate().filter(|(_, outcome)| outcome.placed.is_none());
        let waiting: Vec<usize> = waiting.map(|(pod, _)| pod).collect();
        for (pod, why) in waiting.iter().zip(placer.whys(&waiting)) {
            state.outcomes[*pod].why = Some(why);
        }
        for outcome in &mut state.outcomes {
            if outcome.placed.is_none() {
                continue;
            }
            if outcome.began.is_none() {
                outcome.why = Some("it has its devices and waits for the rest of its gang".to_owned());
            }
        }
        let at = self.at.map_or(last, |at| at.min(last));
        let Snapshot { holdings, wishes, fragmentation } =
            snapshot.unwrap_or_else(|| self.look(&*placer, &state));
        let State { outcomes, taken, used, cards_used, nodes_used, .. } = state;
        let has_teams = !self.workload.quotas.is_empty() && policy == PolicyName::Tessera;
        let teams = has_teams.then(|| means.report(placer.team_views(), self.workload, &outcomes));
        RunReport {
            pods: outcomes,
            taken,
            used,
            end: last,
            cards_used,
            nodes_used,
            holdings,
            at,
            wishes,
            fragmentation,
            teams,
        }
    }

    /// A snapshot of the fleet.
    fn look(&self, placer: &dyn Placer, state: &State) -> Snapshot {
        let cluster = placer.cluster();
        Snapshot {
            wishes: super::wish::fitting(self.fleet, cluster.objects(), self.wishes),
            fragmentation: (!self.workload.pods.is_empty())
                .then(|| self.demands.fragmentation(self.fleet, cluster, &state.holdings)),
            holdings: state.holdings.clone(),
        }
    }
}

/// The fleet at some time; fields as in [`RunReport`].
struct Snapshot {
    holdings: Holdings,
    wishes: Vec<usize>,
    fragmentation: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Start of each pod, in seconds.
    fn began(nodes: &str, list: &str, policy: PolicyName) -> Vec<(String, Option<u64>)> {
        let fleet = Fleet::new(&[nodes.parse().unwrap()]).unwrap();
        let workload = Workload::of_text(list, &fleet);
        let demands = Demands::of(&fleet, &workload);
        let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at: None, wishes: &[] };
        let report = run.run(policy, 1, |_| ());
        let pods = report.pods.iter().zip(&workload.pods);
        let mut began: Vec<(String, Option<u64>)> = pods
            .map(|(outcome, pod)| (pod.name.clone(), outcome.began.map(|began| began.as_secs())))
            .collect();
        began.sort();
        assert!(report.pods.iter().all(|pod| pod.began.is_some() == pod.why.is_none()), "{report:?}");
        began
    }

    fn names(began: &[(&str, Option<u64>)]) -> Vec<(String, Option<u64>)> {
        began.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect()
    }

    #[test]
    fn who_waits_goes_by_priority_and_then_in_order() {
        let list = "name,gpu,at,duration,priority\n\
                    a,8,0,100s,0\nb,8,1s,100s,0\nc,8,2s,100s,5\nd,8,3s,100s,0\ne,9,4s,,0\n";
        let wanted = names(&[
            ("a-0", Some(0)),
            ("b-0", Some(200)),
            ("c-0", Some(100)),
            ("d-0", Some(300)),
            ("e-0", None),
        ]);
        for policy in PolicyName::of_fleets() {
            assert_eq!(began("1xdgx-h100", list, policy), wanted, "{policy}");
        }
    }

    /// With other policies, pods of a gang hold cards while waiting for the rest.
    #[test]
    fn a_gang_begins_together() {
        let list = "name,gpu,count,at,duration,gang\na,8,1,0,100s,\ng,8,2,1s,50s,2\nb,8,1,2s,10s,\n";
        let ours = names(&[("a-0", Some(0)), ("b-0", Some(2)), ("g-0", Some(100)), ("g-1", Some(100))]);
        assert_eq!(began("2xdgx-h100", list, PolicyName::Tessera), ours);
        let others = names(&[("a-0", Some(0)), ("b-0", Some(150)), ("g-0", Some(100)), ("g-1", Some(100))]);
        assert_eq!(began("2xdgx-h100", list, PolicyName::FirstFit), others);
    }

    /// Many pods asking for pairs of cards arrived and left, then ten small pods. The first node was full when a share arrived on
    /// the second, and is empty for the remaining arrivals.
    #[test]
    fn others_choose_as_they_do() {
        let fleet = Fleet::new(&["3xdgx-h100,cards=2".parse().unwrap()]).unwrap();
        let list = "name,gpu,count,at,cpu,duration\nsmall,1%,10,0,,1s\npair,2,60,1s,,1s\nfull,2,1,100s,1,2s\n\
                    a,30%,1,101s,1,\nb,1,1,103s,1,\nc,80%,1,104s,1,\nd,20%,1,105s,20,\ne,1,1,106s,1,\n";
        let workload = Workload::of_text(list, &fleet);
        let demands = Demands::of(&fleet, &workload);
        let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at: None, wishes: &[] };
        // Node and card of each of the five pods.
        let places = |policy| {
            let report = run.run(policy, 1, |_| ());
            let mut held: Vec<(usize, String)> = Vec::new();
            for card in report.holdings.cards(&fleet) {
                let place = format!("{}/{}", &card.node[card.node.len() - 1..], card.index);
                held.extend(card.holders.iter().map(|holder| (holder.pod, place.clone())));
            }
            held.sort();
            held.into_iter().map(|(_, place)| place).collect::<Vec<_>>().join(" ")
        };
        let (packed, first) = ("2/0 2/1 1/0 2/0 1/1", "2/0 1/0 1/1 1/1 2/1");
        // The fullest card of any node.
        let filled = "2/0 2/1 1/0 1/0 1/1";
        for (policy, wanted) in [
            (PolicyName::Tessera, packed),
            (PolicyName::HamiBinpack, packed),
            (PolicyName::KaiBinpack, packed),
            (PolicyName::Fgd, packed),
            (PolicyName::FgdBestFit, packed),
            // Has learned pairs and small pods, but nothing of the remaining arrivals.
            (PolicyName::FgdLearning, filled),
            (PolicyName::BestFit, packed),
            (PolicyName::Packing, filled),
            // Whole cards beside whole cards.
            (PolicyName::Clustering, "2/0 1/0 2/1 2/1 1/1"),
            (PolicyName::FirstFit, first),
        ] {
            assert_eq!(places(policy), wanted, "{policy}");
        }
    }

    /// The first node is empty again when the second share arrives, and the first share is on the other node.
    #[test]
    fn scores_follow_what_is_on_a_node() {
        let fleet = Fleet::new(&["2xdgx-h100,cards=1".parse().unwrap()]).unwrap();
        let list = "name,gpu,count,at,every,duration\nfull,1,1,0,,2s\nshare,30%,2,1s,2s,\n";
        let workload = Workload::of_text(list, &fleet);
        let demands = Demands::of(&fleet, &workload);
        let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at: None, wishes: &[] };
        for policy in [
            PolicyName::HamiBinpack,
            PolicyName::KaiBinpack,
            PolicyName::BestFit,
            PolicyName::Packing,
            PolicyName::Clustering,
        ] {
            let report = run.run(policy, 1, |_| ());
            let nodes: Vec<_> = report.pods.iter().map(|pod| pod.placed.unwrap().1).collect();
            assert_eq!(nodes, [0, 1, 1], "{policy}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_answer() {
        let fleet = Fleet::new(&["4xdgx-h100".parse().unwrap()]).unwrap();
        let list = "name,gpu,count,every,duration\na,2,9,5m,1h\nb,1g.10gb,30,3m,2h\nc,15%,20,4m,3h\n";
        let workload = Workload::of_text(list, &fleet);
        let demands = Demands::of(&fleet, &workload);
        let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at: None, wishes: &[] };
        for policy in PolicyName::of_fleets() {
            let [one, other] = [7, 7].map(|seed| run.run(policy, seed, |_| ()));
            assert_eq!((one.pods, one.taken), (other.pods, other.taken), "{policy}");
        }
    }
}
