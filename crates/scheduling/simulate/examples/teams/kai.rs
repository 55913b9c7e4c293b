//! KAI-Scheduler's rule for teams, in plain cards on nodes: quota, over-quota weight, order of queues and reclaim as in its plugin `proportion`
//! (0.x, Apache-2.0), and held to cases of its own tables. Without priorities, consolidation and a minimum runtime; of victims no more go
//! than needed.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::{CARDS, Fate, Job, WEIGHTS, share};

/// Cycles at one time while teams take devices from each other.
const CYCLES: usize = 20;

/// A queue, in cards.
#[derive(Clone, Debug, Default, PartialEq)]
struct Queue {
    deserved: f64,
    weight: f64,
    requested: f64,
    allocated: f64,
    fair_share: f64,
}

/// Sets the fair share of each queue: its quota, then by over-quota weight, at last the remainders of whole cards.
fn divide(total: f64, queues: &mut [Queue]) {
    for queue in queues.iter_mut() {
        queue.fair_share = queue.deserved.min(queue.requested);
    }
    let mut left = total - queues.iter().map(|queue| queue.fair_share).sum::<f64>();
    let mut rests: BTreeMap<usize, f64> = BTreeMap::new();
    let is_open = |queue: &Queue| queue.requested > queue.fair_share;
    while left > 0.0 {
        let round = left;
        let weights: f64 = queues.iter().filter(|queue| is_open(queue)).map(|queue| queue.weight).sum();
        if weights == 0.0 {
            break;
        }
        let mut again = false;
        for (place, queue) in queues.iter_mut().enumerate().filter(|(_, queue)| is_open(queue)) {
            let (wanted, part) = (queue.requested - queue.fair_share, round * queue.weight / weights);
            let given = if wanted <= part {
                rests.remove(&place);
                wanted
            } else {
                rests.insert(place, part - part.floor());
                part.floor()
            };
            queue.fair_share += given;
            left -= given;
            again |= given > 0.0 && wanted < part;
        }
        if !again {
            break;
        }
    }
    let mut rests: Vec<(usize, f64)> = rests.into_iter().filter(|(_, rest)| *rest > 0.0).collect();
    rests.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    for (place, _) in rests {
        let given = left.clamp(0.0, 1.0);
        queues[place].fair_share += given;
        left -= given;
    }
}

impl Queue {
    fn share_with(&self, more: f64) -> f64 {
        let allocatable = self.deserved.max(self.fair_share);
        let allocated = self.allocated + more;
        if allocatable == 0.0 { allocated * 1000.0 } else { allocated / allocatable }
    }

    /// Which of two queues goes first with its next job.
    fn order(&self, need: f64, other: &Self, needed: f64) -> Ordering {
        let is_over = |queue: &Self| queue.allocated > queue.fair_share;
        let is_above_quota = |queue: &Self, need: f64| queue.allocated + need > queue.deserved;
        is_over(self)
            .cmp(&is_over(other))
            .then(is_above_quota(self, need).cmp(&is_above_quota(other, needed)))
            .then(self.share_with(need).total_cmp(&other.share_with(needed)))
            .then(self.share_with(0.0).total_cmp(&other.share_with(0.0)))
    }

    /// Whether the queue stays within its fair share with so much more.
    fn may_reclaim(&self, need: f64) -> bool {
        self.allocated + need <= self.fair_share
    }

    /// Whether it may get so much from a queue that has `remaining` left, victims so far aside.
    fn may_reclaim_from(&self, need: f64, other: &Self, remaining: f64) -> bool {
        remaining > other.fair_share || (self.allocated + need <= self.deserved && remaining > other.deserved)
    }
}

/// A running job.
struct Running {
    since: u64,
    /// Nodes with cards of its pods.
    seats: Vec<(usize, usize)>,
}

struct Kai<'j> {
    jobs: &'j [Job],
    free: Vec<usize>,
    queues: Vec<Queue>,
    /// Waiting jobs of each queue, by arrival.
    waiting: Vec<BTreeSet<(u64, usize)>>,
    running: BTreeMap<usize, Running>,
    ends: BinaryHeap<Reverse<(u64, usize, u64)>>,
    fates: Vec<Fate>,
}

/// Seats for a job's pods on these nodes, the fullest first.
fn seats(job: &Job, free: &[usize]) -> Option<Vec<(usize, usize)>> {
    let mut free = free.to_vec();
    let (cards, pods) = job.pods();
    let mut seats = Vec::new();
    for _ in 0..pods {
        let fitting = (0..free.len()).filter(|node| free[*node] >= cards);
        let node = fitting.min_by_key(|node| (free[*node], *node))?;
        free[node] -= cards;
        seats.push((node, cards));
    }
    Some(seats)
}

impl Kai<'_> {
    fn need(&self, job: usize) -> f64 {
        self.jobs[job].cards as f64
    }

    fn start(&mut self, job: usize, seats: Vec<(usize, usize)>, now: u64) {
        let Job { team, arrives, runs, .. } = self.jobs[job];
        seats.iter().for_each(|(node, cards)| self.free[*node] -= cards);
        self.waiting[team].remove(&(arrives as u64, job));
        self.queues[team].allocated += self.need(job);
        self.ends.push(Reverse((now + runs as u64, job, now)));
        self.running.insert(job, Running { since: now, seats });
        self.fates[job].run = Some(now as f64..now as f64 + runs);
    }

    /// The job leaves its seats. Returns its start.
    fn stop(&mut self, job: usize) -> u64 {
        let Running { since, seats } = self.running.remove(&job).expect("it runs");
        seats.iter().for_each(|(node, cards)| self.free[*node] += cards);
        self.queues[self.jobs[job].team].allocated -= self.need(job);
        since
    }

    fn evict(&mut self, job: usize, now: u64) {
        let since = self.stop(job);
        self.fates[job].run = None;
        self.fates[job].lost.push(since as f64..now as f64);
        self.waiting[self.jobs[job].team].insert((self.jobs[job].arrives as u64, job));
    }

    /// The next job of the queue that goes first, but for sizes that did not fit.
    fn next(&self, failed: &BTreeSet<(usize, usize)>) -> Option<usize> {
        let of_queue = |queue: &BTreeSet<(u64, usize)>| {
            let mut jobs = queue.iter().map(|(_, job)| *job);
            jobs.find(|job| !failed.contains(&(self.jobs[*job].team, self.jobs[*job].cards)))
        };
        let next: Vec<usize> = self.waiting.iter().filter_map(of_queue).collect();
        let queue = |job: usize| &self.queues[self.jobs[job].team];
        next.into_iter().min_by(|one, other| {
            queue(*one).order(self.need(*one), queue(*other), self.need(*other)).then(one.cmp(other))
        })
    }

    fn allocate(&mut self, now: u64) {
        let mut failed = BTreeSet::new();
        while let Some(job) = self.next(&failed) {
            match seats(&self.jobs[job], &self.free) {
                Some(seats) => self.start(job, seats, now),
                None => drop(failed.insert((self.jobs[job].team, self.jobs[job].cards))),
            }
        }
    }

    /// Victims for the job: of the queues that go last, the youngest first, no more than needed.
    fn victims(&self, job: usize) -> Option<Vec<usize>> {
        let (own, need) = (&self.queues[self.jobs[job].team], self.need(job));
        if !own.may_reclaim(need) {
            return None;
        }
        let mut queues: Vec<usize> =
            (0..self.queues.len()).filter(|queue| *queue != self.jobs[job].team).collect();
        queues.sort_by(|one, other| self.queues[*other].order(0.0, &self.queues[*one], 0.0));
        let (mut free, mut victims) = (self.free.clone(), Vec::new());
        let release = |free: &mut Vec<usize>, victim: usize, sign: bool| {
            for (node, cards) in &self.running[&victim].seats {
                free[*node] = if sign { free[*node] + cards } else { free[*node] - cards };
            }
        };
        'found: for queue in queues {
            let mut remaining = self.queues[queue].allocated;
            let of_queue = self.running.iter().filter(|(job, _)| self.jobs[**job].team == queue);
            let mut of_queue: Vec<(u64, usize)> =
                of_queue.map(|(job, running)| (running.since, *job)).collect();
            of_queue.sort_unstable();
            for (_, victim) in of_queue.into_iter().rev() {
                if !own.may_reclaim_from(need, &self.queues[queue], remaining) {
                    break;
                }
                remaining -= self.need(victim);
                release(&mut free, victim, true);
                victims.push(victim);
                if seats(&self.jobs[job], &free).is_some() {
                    break 'found;
                }
            }
        }
        seats(&self.jobs[job], &free)?;
        victims.retain(|victim| {
            release(&mut free, *victim, false);
            let is_needed = seats(&self.jobs[job], &free).is_none();
            if is_needed {
                release(&mut free, *victim, true);
            }
            is_needed
        });
        Some(victims)
    }

    /// Takes devices from other queues. Returns whether any were taken.
    fn reclaim(&mut self, now: u64) -> bool {
        let mut failed = BTreeSet::new();
        let mut has_any = false;
        while let Some(job) = self.next(&failed) {
            failed.insert((self.jobs[job].team, self.jobs[job].cards));
            let Some(victims) = self.victims(job) else { continue };
            victims.into_iter().for_each(|victim| self.evict(victim, now));
            if let Some(seats) = seats(&self.jobs[job], &self.free) {
                self.start(job, seats, now);
                has_any = true;
            }
        }
        has_any
    }

    fn cycle(&mut self, now: u64) {
        let total = (self.free.len() * CARDS) as f64;
        for _ in 0..CYCLES {
            for (queue, waiting) in self.queues.iter_mut().zip(&self.waiting) {
                let waiting: usize = waiting.iter().map(|(_, job)| self.jobs[*job].cards).sum();
                queue.requested = queue.allocated + waiting as f64;
            }
            divide(total, &mut self.queues);
            self.allocate(now);
            if !self.reclaim(now) {
                return;
            }
        }
    }
}

/// What becomes of the jobs until this time, with half of each team's share as its quota and its weight for the rest.
pub fn play(until: f64, jobs: &[Job], nodes: usize) -> Vec<Fate> {
    let queue = |team: usize| {
        let deserved = ((nodes * CARDS) as f64 * share(team) / 2.0).floor();
        Queue { deserved, weight: WEIGHTS[team].into(), ..Queue::default() }
    };
    let mut kai = Kai {
        jobs,
        free: vec![CARDS; nodes],
        queues: (0..WEIGHTS.len()).map(queue).collect(),
        waiting: vec![BTreeSet::new(); WEIGHTS.len()],
        running: BTreeMap::new(),
        ends: BinaryHeap::new(),
        fates: jobs.iter().map(|_| Fate::default()).collect(),
    };
    let mut arrivals: Vec<(u64, usize)> =
        jobs.iter().enumerate().map(|(job, one)| (one.arrives as u64, job)).collect();
    arrivals.sort_unstable_by_key(|arrival| Reverse(*arrival));
    loop {
        let end = kai.ends.peek().map(|Reverse((end, ..))| *end);
        let next = end.into_iter().chain(arrivals.last().map(|(at, _)| *at)).min();
        let Some(now) = next.filter(|now| (*now as f64) < until) else { break };
        while let Some(Reverse((end, job, since))) = kai.ends.peek().copied()
            && end <= now
        {
            kai.ends.pop();
            // An eviction makes the end void.
            if kai.running.get(&job).is_some_and(|running| running.since == since) {
                kai.stop(job);
            }
        }
        while let Some((at, job)) = arrivals.last().copied()
            && at <= now
        {
            arrivals.pop();
            kai.waiting[jobs[job].team].insert((at, job));
        }
        kai.cycle(now);
    }
    let fates = jobs.iter().zip(kai.fates);
    fates.map(|(job, fate)| Fate::until(until, job, fate.lost, fate.run)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `resource_division_test.go`, two queues with a quota of two.
    #[test]
    fn shares_are_as_in_its_table() {
        for (total, weights, requested, wanted) in [
            (15.0, [2.0, 2.0], 6.0, [6.0, 6.0]),
            (12.0, [2.0, 2.0], 6.0, [6.0, 6.0]),
            (8.0, [1.0, 3.0], 6.0, [3.0, 5.0]),
            (11.0, [1.0, 4.0], 10.0, [3.0, 8.0]),
            (11.0, [2.0, 2.0], 6.0, [6.0, 5.0]),
            (4.0, [2.0, 2.0], 6.0, [2.0, 2.0]),
        ] {
            let mut queues =
                weights.map(|weight| Queue { deserved: 2.0, weight, requested, ..Queue::default() });
            divide(total, &mut queues);
            assert_eq!(queues.map(|queue| queue.fair_share), wanted, "{total} by {weights:?}");
        }
    }

    /// `reclaimable_test.go`, a single department: a card for the first queue from the second.
    #[test]
    fn reclaim_is_as_in_its_table() {
        let queue =
            |deserved, fair_share, allocated| Queue { deserved, fair_share, allocated, ..Queue::default() };
        for (own, other, wanted) in [
            (queue(3.0, 3.0, 2.0), queue(2.0, 2.0, 3.0), true),
            (queue(3.0, 3.0, 2.0), queue(2.0, 2.0, 2.0), false),
            (queue(3.0, 3.0, 2.0), queue(2.0, 2.0, 1.0), false),
            // Below its quota, and the other above its own within its fair share.
            (queue(3.0, 3.0, 2.0), queue(2.0, 3.0, 3.0), true),
            (queue(3.0, 3.0, 3.0), queue(2.0, 2.0, 3.0), false),
        ] {
            let may = own.may_reclaim(1.0) && own.may_reclaim_from(1.0, &other, other.allocated);
            assert_eq!(may, wanted, "{own:?} from {other:?}");
        }
    }
}
