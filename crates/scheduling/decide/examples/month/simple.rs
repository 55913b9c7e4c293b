//! Three common policies, over numbers of free cards.

use std::collections::BTreeMap;

use crate::objects::CARDS;
use crate::{Job, Policy};

/// Nodes by number, and their jobs.
struct Nodes<'j> {
    jobs: &'j [Job],
    free: Vec<usize>,
    /// The nodes of each job's pods, and the job's latest end.
    running: BTreeMap<usize, (Vec<usize>, u64)>,
    /// In order of arrival.
    waiting: Vec<usize>,
}

impl<'j> Nodes<'j> {
    fn new(jobs: &'j [Job], count: usize) -> Self {
        Nodes { jobs, free: vec![CARDS; count], running: BTreeMap::new(), waiting: Vec::new() }
    }

    fn see(&mut self, came: &[usize], ended: &[usize]) {
        self.waiting.extend(came);
        for job in ended {
            let (nodes, _) = self.running.remove(job).expect("it runs");
            nodes.into_iter().for_each(|node| self.free[node] += self.jobs[*job].cards);
        }
    }

    /// The fullest usable nodes with room for a job's pods, or `None`.
    fn place(&self, job: usize, free: &[usize], may_use: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let Job { pods, cards, .. } = self.jobs[job];
        let mut free = free.to_vec();
        let nodes = (0..pods).map(|_| {
            let fits = (0..free.len()).filter(|node| may_use(*node) && free[*node] >= cards);
            let node = fits.min_by_key(|node| free[*node])?;
            free[node] -= cards;
            Some(node)
        });
        nodes.collect()
    }

    fn start(&mut self, now: u64, job: usize, nodes: Vec<usize>) {
        nodes.iter().for_each(|node| self.free[*node] -= self.jobs[job].cards);
        self.running.insert(job, (nodes, now + self.jobs[job].limit));
        self.waiting.retain(|other| *other != job);
    }

    /// Starts jobs in order, up to the first without room.
    fn start_in_order(&mut self, now: u64) -> Vec<usize> {
        let mut started = Vec::new();
        while let Some(head) = self.waiting.first().copied()
            && let Some(nodes) = self.place(head, &self.free, |_| true)
        {
            self.start(now, head, nodes);
            started.push(head);
        }
        started
    }
}

/// First in, first out: a job without room holds up all later jobs.
pub struct Fifo<'j>(Nodes<'j>);

impl<'j> Fifo<'j> {
    pub fn new(jobs: &'j [Job], nodes: usize) -> Self {
        Fifo(Nodes::new(jobs, nodes))
    }
}

impl Policy for Fifo<'_> {
    fn step(&mut self, now: u64, came: &[usize], ended: &[usize]) -> Vec<usize> {
        self.0.see(came, ended);
        self.0.start_in_order(now)
    }
}

/// EASY backfill: jobs may overtake the head job without delaying it, by their users' run time limits.
pub struct Easy<'j>(Nodes<'j>);

impl<'j> Easy<'j> {
    pub fn new(jobs: &'j [Job], nodes: usize) -> Self {
        Easy(Nodes::new(jobs, nodes))
    }

    /// Latest start of the head job, and its nodes.
    fn reservation(&self, head: usize) -> Option<(u64, Vec<usize>)> {
        let nodes = &self.0;
        let mut free = nodes.free.clone();
        let mut ends: Vec<(u64, usize)> = nodes.running.iter().map(|(job, (_, end))| (*end, *job)).collect();
        ends.sort_unstable();
        for (end, job) in ends {
            nodes.running[&job].0.iter().for_each(|node| free[*node] += nodes.jobs[job].cards);
            if let Some(place) = nodes.place(head, &free, |_| true) {
                return Some((end, place));
            }
        }
        None
    }
}

impl Policy for Easy<'_> {
    fn step(&mut self, now: u64, came: &[usize], ended: &[usize]) -> Vec<usize> {
        self.0.see(came, ended);
        let mut started = self.0.start_in_order(now);
        let Some(head) = self.0.waiting.first().copied() else { return started };
        let Some((begins, kept)) = self.reservation(head) else { return started };
        let behind = self.0.waiting[1..].to_vec();
        for job in behind {
            let ends_before = now + self.0.jobs[job].limit <= begins;
            let place = self.0.place(job, &self.0.free, |node| ends_before || !kept.contains(&node));
            if let Some(place) = place {
                self.0.start(now, job, place);
                started.push(job);
            }
        }
        started
    }
}

/// Seconds a gang may hold part of its cards before giving them back.
const HOLDS: u64 = 300;
/// Seconds of pause before the gang takes cards again.
const PAUSE: u64 = 60;

/// Each pod gets its cards on arrival, on the emptiest node, and starts once its whole gang has cards.
pub struct FirstCome<'j> {
    nodes: Nodes<'j>,
    /// Nodes of pods holding cards before their gang starts, and since when.
    held: BTreeMap<usize, (Vec<usize>, u64)>,
    paused: BTreeMap<usize, u64>,
}

impl<'j> FirstCome<'j> {
    pub fn new(jobs: &'j [Job], nodes: usize) -> Self {
        FirstCome { nodes: Nodes::new(jobs, nodes), held: BTreeMap::new(), paused: BTreeMap::new() }
    }
}

impl Policy for FirstCome<'_> {
    fn step(&mut self, now: u64, came: &[usize], ended: &[usize]) -> Vec<usize> {
        let nodes = &mut self.nodes;
        nodes.see(came, ended);
        self.paused.retain(|_, until| *until > now);
        for (job, (held, _)) in self.held.extract_if(.., |_, (_, since)| *since + HOLDS <= now) {
            held.into_iter().for_each(|node| nodes.free[node] += nodes.jobs[job].cards);
            self.paused.insert(job, now + PAUSE);
        }
        let mut started = Vec::new();
        for job in nodes.waiting.clone() {
            if self.paused.contains_key(&job) {
                continue;
            }
            let Job { pods, cards, limit, .. } = nodes.jobs[job];
            let (mut held, since) = self.held.remove(&job).unwrap_or((Vec::new(), now));
            while held.len() < pods {
                let fits = (0..nodes.free.len()).filter(|node| nodes.free[*node] >= cards);
                let Some(node) = fits.max_by_key(|node| nodes.free[*node]) else { break };
                nodes.free[node] -= cards;
                held.push(node);
            }
            if held.len() == pods {
                nodes.running.insert(job, (held, now + limit));
                started.push(job);
            } else if !held.is_empty() {
                self.held.insert(job, (held, since));
            }
        }
        nodes.waiting.retain(|job| !started.contains(job));
        started
    }

    fn wake(&self) -> Option<u64> {
        let over = self.held.values().map(|(_, since)| since + HOLDS);
        over.chain(self.paused.values().copied()).min()
    }
}
