//! State shared by all parts of a run: the clock, randomness, and the first violation.

use tessera_decide::{ReclaimTo, Time};

use super::bug::Bug;
use super::checks::gangs::Gangs;
use super::checks::idle::IdlePods;
use super::faults::Plan;

/// State shared by all parts of a run.
pub struct Surroundings {
    pub now: Time,
    pub rng: fastrand::Rng,
    /// Whether anything may fail, be late or get lost.
    pub is_faulty: bool,
    /// Planned faults by write. A plan leaves nothing else to chance: possible events happen at once, and delays take their
    /// middle value.
    pub plan: Option<Plan>,
    pub bug: Option<Bug>,
    pub violation: Option<String>,
    /// Since when all nodes have been publishing devices, all of them in steered pools.
    pub only_steered_since: Option<Time>,
    pub log: Option<Vec<String>>,
    /// History of gangs.
    pub gangs: Gangs,
    pub placement: Placement,
    /// How much is taken back for a team.
    pub reclaim_to: ReclaimTo,
    /// Whether pods cease to use their devices, in pools that give these to others.
    pub has_idle_pods: bool,
    pub idle_pods: IdlePods,
    /// Namespaces of pods: several where there are quotas.
    pub namespaces: &'static [&'static str],
}

/// Queueing settings of the pool.
#[derive(Debug, Default, Clone, Copy)]
pub struct Placement {
    pub is_strict: bool,
    /// Delay before nodes are reserved for a gang; `None`: not before the end of the run.
    pub reserve_after: Option<Time>,
}

impl Surroundings {
    /// Faults are random unless a plan is given.
    pub fn new(seed: u64, plan: Option<Plan>, bug: Option<Bug>, with_log: bool) -> Self {
        Surroundings {
            now: Time::ZERO,
            rng: fastrand::Rng::with_seed(seed),
            is_faulty: plan.is_none(),
            plan,
            bug,
            violation: None,
            only_steered_since: None,
            log: with_log.then(Vec::new),
            gangs: Gangs::default(),
            placement: Placement::default(),
            reclaim_to: ReclaimTo::Guarantee,
            has_idle_pods: false,
            idle_pods: IdlePods::default(),
            namespaces: &["team"],
        }
    }

    /// Whether the run has GpuQuotas.
    pub fn has_quotas(&self) -> bool {
        self.namespaces.len() > 1
    }

    /// The namespace of the pod or Job of this number: names are unique in all namespaces together.
    pub fn namespace(&self, number: usize) -> &'static str {
        self.namespaces[number % self.namespaces.len()]
    }

    pub fn violated(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(format!("at {:.1} s: {}", self.now.as_secs_f32(), what()));
        }
    }

    pub fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now.as_secs_f32();
        if let Some(log) = &mut self.log {
            log.push(format!("{now:7.1} {}", what()));
        }
    }

    /// True in `chance` of a hundred cases.
    pub fn percent(&mut self, chance: u32) -> bool {
        self.plan.is_some() || self.rng.u32(0..100) < chance
    }

    /// As [`Self::percent`], but never once faults have stopped.
    pub fn fault(&mut self, chance: u32) -> bool {
        self.is_faulty && self.percent(chance)
    }

    pub fn between(&mut self, least: u64, most: u64) -> Time {
        let middle = u64::midpoint(least, most);
        Time::from_millis(if self.plan.is_some() { middle } else { self.rng.u64(least..=most) })
    }

    pub fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}
