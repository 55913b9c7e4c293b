//! The state of the loop: each part has its own file, and its fields change only there.

use tessera_cluster::Asker;
use tessera_placement::Time;

use crate::admission::Checks;
use crate::gangs::Gangs;
use crate::gathering::Gathering;
use crate::guesses::Guesses;
use crate::healing::Healing;
use crate::idle::IdleClaims;
use crate::idle::successors::Successors;
use crate::leadership::Leadership;
use crate::learn::Arrivals;
use crate::ledger::Ledger;
use crate::marks::Marks;
use crate::overuse::Overuse;
use crate::queue::Queue;
use crate::refusals::Refusals;
use crate::round::Round;
use crate::unplaced::Unplaced;
use crate::waits::Waits;
use crate::workload_pods::WorkloadPods;
use crate::world::World;

/// All that the loop knows.
pub(crate) struct State {
    pub world: World,
    /// Decisions whose writes have not been observed yet.
    pub ledger: Ledger,
    pub leadership: Leadership,
    pub waits: Waits,
    pub gangs: Gangs,
    pub workload_pods: WorkloadPods,
    /// Order of the waiting pods and gangs, and nodes reserved for them.
    pub standing: Queue,
    pub refusals: Refusals,
    pub healing: Healing,
    pub idle: IdleClaims,
    pub overuse: Overuse,
    /// Pods that make room by moving.
    pub gathering: Gathering,
    pub successors: Successors,
    /// Kueue's Workloads with an answer due, or with room kept.
    pub checks: Checks,
    pub marks: Marks,
    pub guesses: Guesses,
    pub unplaced: Unplaced,
    pub learned: Arrivals,
    pub round: Round,
    pub config: Config,
}

/// Settings that never change.
pub(crate) struct Config {
    /// Schedulers whose pods get devices of managed cards.
    pub schedulers: Vec<String>,
    /// How long some pods of a gang may run while the others find no room.
    pub partial_timeout: Time,
}

/// See [`crate::Decider::with_partial_timeout`].
const PARTIAL_TIMEOUT: Time = Time::from_secs(120);

/// See [`crate::Decider::with_topology_keys`].
const TOPOLOGY_KEYS: [&str; 2] = ["topology.kubernetes.io/rack", "topology.kubernetes.io/zone"];

impl State {
    pub fn new(driver: &str, asker: Asker) -> Self {
        State {
            world: World::new(driver, asker, TOPOLOGY_KEYS.map(str::to_owned).into()),
            ledger: Ledger::default(),
            leadership: Leadership::default(),
            waits: Waits::default(),
            gangs: Gangs::default(),
            workload_pods: WorkloadPods::default(),
            standing: Queue::default(),
            refusals: Refusals::default(),
            healing: Healing::default(),
            idle: IdleClaims::default(),
            overuse: Overuse::default(),
            gathering: Gathering::default(),
            successors: Successors::default(),
            checks: Checks::default(),
            marks: Marks::default(),
            guesses: Guesses::default(),
            unplaced: Unplaced::default(),
            learned: Arrivals::default(),
            round: Round::default(),
            config: Config {
                schedulers: vec![tessera_cluster::DEFAULT_SCHEDULER.to_owned()],
                partial_timeout: PARTIAL_TIMEOUT,
            },
        }
    }
}
