//! Limits on what some namespaces may take together, whatever is free.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult};
use tessera_allocator::held::DeviceHold;
use tessera_allocator::placement::Pick;
use tessera_cluster::worth::Worth;
use tessera_cluster::{AllocationExt, CardClass, Cluster};

/// Limits on what some namespaces may take together: all must hold.
#[derive(Clone, Default)]
pub struct TakeLimit {
    /// The limits.
    pub rules: Vec<Rule>,
    /// The only cards of which devices may be taken, where not all are: each device must be of one of these choices.
    pub only: Option<Vec<Arc<dyn Covers>>>,
}

/// One limit.
#[derive(Clone)]
pub struct Rule {
    /// The namespaces that take together.
    pub namespaces: Arc<[String]>,
    /// The cards counted.
    pub covers: Arc<dyn Covers>,
    /// The number counted of a worth.
    pub count: fn(Worth) -> u64,
    /// The most that may be taken.
    pub most: u64,
}

/// A choice of cards.
pub trait Covers: Send + Sync {
    /// Whether cards of this class are among them.
    fn covers(&self, class: &CardClass) -> bool;
}

/// What a [`TakeLimit`] leaves.
pub(crate) struct Left<'l> {
    rules: Vec<(&'l Rule, u64)>,
    only: Option<&'l [Arc<dyn Covers>]>,
    driver: &'l str,
}

impl Rule {
    /// What is taken now.
    #[must_use]
    pub fn taken(&self, cluster: &Cluster) -> u64 {
        self.of(self.namespaces.iter().flat_map(|namespace| cluster.charges().of_namespace(namespace)))
    }

    /// The number counted of these devices.
    pub fn of<'c>(&self, devices: impl Iterator<Item = (&'c CardClass, Worth)>) -> u64 {
        let covered = devices.filter(|(class, _)| self.covers.covers(class));
        (self.count)(covered.map(|(_, worth)| worth).sum())
    }
}

/// The worth of each of the driver's devices in the allocation.
#[must_use]
pub fn worths(cluster: &Cluster, driver: &str, allocation: &AllocationResult) -> Vec<(CardClass, Worth)> {
    worths_of(cluster, driver, allocation.results())
}

/// The driver's devices among these.
fn worths_of(
    cluster: &Cluster,
    driver: &str,
    results: &[DeviceRequestAllocationResult],
) -> Vec<(CardClass, Worth)> {
    // No plan has an unreadable quantity.
    let holds = DeviceHold::of(results).unwrap_or_default();
    let worth = |hold: &DeviceHold| {
        let device = cluster.inventory().find(driver, hold.pool(), hold.device()).next()?;
        Some((CardClass::of(device), Worth::of_hold(device, hold)))
    };
    holds.iter().filter(|hold| hold.driver() == driver).filter_map(worth).collect()
}

impl TakeLimit {
    /// Whether these devices of the driver may be taken.
    #[must_use]
    pub fn allows(&self, cluster: &Cluster, driver: &str, results: &[DeviceRequestAllocationResult]) -> bool {
        self.left(cluster, driver).allow(&worths_of(cluster, driver, results))
    }

    /// Whether a limit on all cards leaves less than this, or nothing.
    #[must_use]
    pub fn leaves_less(&self, cluster: &Cluster, than: Worth) -> bool {
        let leaves_less = |rule: &Rule| {
            let left = rule.most.saturating_sub(rule.taken(cluster));
            rule.covers.covers(&CardClass::default()) && (left == 0 || left < (rule.count)(than))
        };
        self.rules.iter().any(leaves_less)
    }

    /// Whether the limits leave anything of cards of this class.
    #[must_use]
    pub fn leaves_any_of(&self, cluster: &Cluster, class: &CardClass) -> bool {
        let is_open = self.only.as_ref().is_none_or(|only| only.iter().any(|choice| choice.covers(class)));
        let mut rules = self.rules.iter().filter(|rule| rule.covers.covers(class));
        is_open && rules.all(|rule| rule.taken(cluster) < rule.most)
    }

    /// By limit: the excess to be given back, were these devices of the driver taken, too.
    #[must_use]
    pub fn excess(
        &self,
        cluster: &Cluster,
        driver: &str,
        results: &[DeviceRequestAllocationResult],
    ) -> Vec<u64> {
        let own = worths_of(cluster, driver, results);
        let excess = |rule: &Rule| match rule.of(own.iter().map(|(class, worth)| (class, *worth))) {
            0 => 0,
            own => rule.taken(cluster).saturating_add(own).saturating_sub(rule.most),
        };
        self.rules.iter().map(excess).collect()
    }

    /// The limits with these devices of the driver counted to the namespace, too.
    #[must_use]
    pub fn beside(
        &self,
        cluster: &Cluster,
        driver: &str,
        namespace: &str,
        results: &[DeviceRequestAllocationResult],
    ) -> Self {
        let devices = worths_of(cluster, driver, results);
        let mut limit = self.clone();
        let counts = |rule: &&mut Rule| rule.namespaces.iter().any(|counted| counted == namespace);
        for rule in limit.rules.iter_mut().filter(counts) {
            let taken = rule.of(devices.iter().map(|(class, worth)| (class, *worth)));
            rule.most = rule.most.saturating_sub(taken);
        }
        limit
    }

    /// What the limits leave of the driver's devices.
    pub(crate) fn left<'l>(&'l self, cluster: &Cluster, driver: &'l str) -> Left<'l> {
        let left = |rule: &'l Rule| (rule, rule.most.saturating_sub(rule.taken(cluster)));
        Left { rules: self.rules.iter().map(left).collect(), only: self.only.as_deref(), driver }
    }
}

impl Left<'_> {
    /// Whether these devices may be taken.
    pub fn allows(&self, picks: &[Pick<'_>]) -> bool {
        let own = picks.iter().filter(|pick| pick.device.driver_name() == self.driver);
        let own = own.map(|pick| (CardClass::of(pick.device), Worth::of_pick(pick)));
        self.allow(&own.collect::<Vec<_>>())
    }

    fn allow(&self, own: &[(CardClass, Worth)]) -> bool {
        let is_open =
            |class: &CardClass| self.only.is_none_or(|only| only.iter().any(|choice| choice.covers(class)));
        own.iter().all(|(class, _)| is_open(class))
            && self
                .rules
                .iter()
                .all(|(rule, left)| rule.of(own.iter().map(|(class, worth)| (class, *worth))) <= *left)
    }
}
