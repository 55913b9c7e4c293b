//! Teams: whose namespace it is, what devices are worth, and what may be taken.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_api::gpu_quota::{Amount, BORROW_LABEL, Unit, WhenSpent};
use tessera_cluster::{GpuQuota, Key, Kind, Object};

use super::{DeviceId, View, claims, devices_of, of_kind, published};
use crate::simulation::quotas::EXEMPT;

/// Devices of each claim.
pub type Taken = BTreeMap<Key, Vec<DeviceId>>;

/// The only expression in quotas here.
pub const OF_SOME_CARDS: &str = "device.attributes['gpu.tessera.dev'].productName == 'A100'";

/// The product of all cards of a node.
pub const PRODUCT_OF: fn(&str) -> &'static str = |node| if node == "a" { "A100" } else { "H100" };

/// The quotas, and the devices whose slices are known.
pub struct Teams<'v> {
    quotas: Vec<&'v GpuQuota>,
    of_namespaces: BTreeMap<&'v str, &'v GpuQuota>,
    published: BTreeSet<DeviceId>,
}

/// The devices of all claims.
pub fn taken(view: &View) -> Taken {
    let all = claims(view).map(|claim| (Key::from(&claim.metadata), devices_of(claim).collect::<Vec<_>>()));
    all.filter(|(_, devices)| !devices.is_empty()).collect()
}

/// Whether the pod may use more than its team's guarantee.
pub fn borrows(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(BORROW_LABEL)).is_none_or(|value| value != "false")
}

/// Whether no quota refuses the pod.
pub fn is_exempt(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref()) == Some(EXEMPT.0)
}

fn name(quota: &GpuQuota) -> &str {
    quota.metadata.name.as_deref().unwrap_or_default()
}

/// The effect of the quota's budget, if it is spent by the quota's status.
fn effect_of_spent(quota: &GpuQuota) -> Option<WhenSpent> {
    let budget = quota.spec.budget.as_ref()?;
    let used = quota.status.as_ref()?.hours.as_ref()?.card_seconds;
    (used >= u64::from(budget.gpu_hours) * 3600).then_some(budget.when_spent)
}

/// Whether devices of the card count for the amount.
fn counts(amount: &Amount, (pool, _): &DeviceId) -> bool {
    let node = pool.rsplit('/').next().unwrap_or_default();
    match amount.cards.as_deref() {
        None => true,
        Some(OF_SOME_CARDS) => PRODUCT_OF(node) == "A100",
        Some(other) => panic!("no expression of these runs: {other}"),
    }
}

/// What a guarantee still covers.
pub struct Guarantee<'t, 'v> {
    teams: &'t Teams<'v>,
    left: Vec<(&'v Amount, u64)>,
}

impl Guarantee<'_, '_> {
    fn amounts(&self, devices: &[DeviceId]) -> Vec<u64> {
        let of = |(amount, _): &(&Amount, u64)| self.teams.of_amount(amount, devices.iter(), true);
        self.left.iter().map(of).collect()
    }

    /// Uses the guarantee for these devices, as far as it goes.
    pub fn force(&mut self, devices: &[DeviceId]) {
        let amounts = self.amounts(devices);
        self.left.iter_mut().zip(amounts).for_each(|((_, left), more)| *left = left.saturating_sub(more));
    }

    /// Uses the guarantee for these devices, if it covers them.
    pub fn take(&mut self, devices: &[DeviceId]) -> bool {
        let amounts = self.amounts(devices);
        let is_covered = amounts.iter().any(|more| *more > 0)
            && self.left.iter().zip(&amounts).all(|((_, left), more)| more <= left);
        if is_covered {
            self.force(devices);
        }
        is_covered
    }
}

impl<'v> Teams<'v> {
    pub fn of(view: &'v View) -> Self {
        let mut quotas: Vec<&GpuQuota> = of_kind(view, Kind::GpuQuota)
            .filter_map(|object| match object {
                Object::GpuQuota(quota) => Some(quota),
                _ => None,
            })
            .collect();
        quotas.sort_by_key(|quota| {
            (Reverse(quota.spec.priority), quota.metadata.creation_timestamp.clone(), name(quota))
        });
        let mut of_namespaces = BTreeMap::new();
        for object in of_kind(view, Kind::Namespace) {
            let Object::Namespace(namespace) = object else { continue };
            let labels = namespace.metadata.labels.clone().unwrap_or_default();
            let is_selected = |quota: &&&GpuQuota| {
                let selector = quota.spec.namespace_selector.as_ref();
                selector.is_some_and(|selector| {
                    selector.match_labels.iter().all(|(name, value)| labels.get(name) == Some(value))
                })
            };
            if let Some(quota) = quotas.iter().find(is_selected) {
                of_namespaces.insert(namespace.metadata.name.as_deref().unwrap_or_default(), *quota);
            }
        }
        let published = published(view).map(|(_, device)| device).collect();
        Teams { quotas, of_namespaces, published }
    }

    pub fn are_any(&self) -> bool {
        !self.quotas.is_empty()
    }

    pub fn quotas(&self) -> impl Iterator<Item = &'v GpuQuota> {
        self.quotas.iter().copied()
    }

    pub fn of_namespace(&self, namespace: &str) -> Option<&'v GpuQuota> {
        self.of_namespaces.get(namespace).copied()
    }

    pub fn name_of(&self, namespace: &str) -> Option<&'v str> {
        self.of_namespace(namespace).map(name)
    }

    /// The guarantee of the team, if any.
    pub fn guarantee(&self, team: Option<&str>) -> Option<Guarantee<'_, 'v>> {
        let quota = self.quotas().find(|quota| Some(name(quota)) == team)?;
        let left: Vec<_> =
            self.guaranteed(quota).into_iter().map(|amount| (amount, amount.guaranteed())).collect();
        (!left.is_empty()).then_some(Guarantee { teams: self, left })
    }

    fn parent(&self, quota: &GpuQuota) -> Option<&'v GpuQuota> {
        let parent = quota.spec.parent.as_deref()?;
        self.quotas.iter().copied().find(|other| name(other) == parent && other.spec.parent.is_none())
    }

    /// The team's own quota, and its parent's.
    fn with_parent(&self, quota: &'v GpuQuota) -> impl Iterator<Item = &'v GpuQuota> {
        [Some(quota), self.parent(quota)].into_iter().flatten()
    }

    /// Amounts of which something is guaranteed: none while a budget is spent that leaves the team what is lent.
    fn guaranteed(&self, quota: &'v GpuQuota) -> Vec<&'v Amount> {
        if self.with_parent(quota).any(|quota| effect_of_spent(quota) == Some(WhenSpent::LentOnly)) {
            return Vec::new();
        }
        quota.spec.amounts.iter().filter(|amount| amount.guaranteed() > 0).collect()
    }

    /// The quota whose budget is spent, so that new pods of the namespace wait.
    pub fn waits_for_hours(&self, namespace: &str) -> Option<&'v str> {
        let mut quotas = self.with_parent(self.of_namespace(namespace)?);
        quotas.find(|quota| effect_of_spent(quota) == Some(WhenSpent::Wait)).map(name)
    }

    /// Whether the claims of the namespace count for the quota.
    fn is_counted(&self, namespace: &str, quota: &GpuQuota) -> bool {
        self.of_namespace(namespace).is_some_and(|own| {
            name(own) == name(quota) || self.parent(own).is_some_and(|parent| name(parent) == name(quota))
        })
    }

    /// Worth of these devices. Without its slice nobody knows a device's memory, and a part is taken for a whole card: `most`
    /// says whether to.
    pub fn worth<'d>(&self, unit: Unit, devices: impl Iterator<Item = &'d DeviceId>, most: bool) -> u64 {
        let of = |device: &DeviceId| {
            let is_part = device.1.contains("mig");
            match (unit, self.published.contains(device)) {
                (Unit::Cards, is_known) if is_part && (is_known || !most) => 500_000,
                (Unit::Cards, _) => 1_000_000,
                (Unit::Memory, false) if !most => 0,
                (Unit::Memory, _) => (if is_part { 40 } else { 80 }) << 30,
            }
        };
        devices.map(of).sum()
    }

    fn of_amount<'d>(&self, amount: &Amount, devices: impl Iterator<Item = &'d DeviceId>, most: bool) -> u64 {
        self.worth(amount.unit, devices.filter(|device| counts(amount, device)), most)
    }

    fn used(&self, taken: &Taken, quota: &GpuQuota, amount: &Amount, most: bool) -> u64 {
        let own = taken.iter().filter(|(claim, _)| self.is_counted(&claim.namespace, quota));
        self.of_amount(amount, own.flat_map(|(_, devices)| devices), most)
    }

    /// The limit of the team or its parent that these devices would exceed. `own_only`: what is guaranteed is the limit.
    pub fn exceeded(
        &self,
        taken: &Taken,
        namespace: &str,
        own_only: bool,
        devices: &[DeviceId],
    ) -> Option<String> {
        let own_only = own_only && self.are_any();
        let Some(team) = self.of_namespace(namespace) else {
            return (own_only && !devices.is_empty())
                .then(|| format!("nothing is guaranteed to {namespace}"));
        };
        let guaranteed = self.guaranteed(team);
        let is_guaranteed = |device: &DeviceId| guaranteed.iter().any(|amount| counts(amount, device));
        if own_only && let Some((_, device)) = devices.iter().find(|device| !is_guaranteed(device)) {
            return Some(format!("nothing of cards like {device} is guaranteed to {namespace}"));
        }
        let guarantees = guaranteed.iter().filter(|_| own_only);
        let guarantees = guarantees.map(|amount| (team, *amount, amount.guaranteed()));
        let limits = self.with_parent(team).flat_map(|quota| {
            quota.spec.amounts.iter().filter_map(move |amount| Some((quota, amount, amount.limit()?)))
        });
        let mut exceeded = limits.chain(guarantees).filter_map(|(quota, amount, most)| {
            let (used, more) =
                (self.used(taken, quota, amount, false), self.of_amount(amount, devices.iter(), false));
            (more > 0 && used + more > most)
                .then(|| format!("{} of {}: {used} and {more} of {most}", amount.name, name(quota)))
        });
        exceeded.next()
    }

    /// Whether the team of a namespace has less by weight, with these devices, than the team of another. Of other parents the parents
    /// are compared.
    pub fn would_have_less(&self, taken: &Taken, own: &str, devices: &[DeviceId], other: &str) -> bool {
        let family =
            |namespace: &str| self.of_namespace(namespace).map(|quota| self.parent(quota).unwrap_or(quota));
        let is_same = self.is_family(own, other);
        let team = |namespace: &str| if is_same { self.of_namespace(namespace) } else { family(namespace) };
        let share = |namespace: &str, more: &[DeviceId]| {
            let quota = team(namespace);
            let is_counted = |claim: &Key| match quota {
                Some(quota) => self.is_counted(&claim.namespace, quota),
                None => self.of_namespace(&claim.namespace).is_none(),
            };
            let used = taken.iter().filter(|(claim, _)| is_counted(claim)).flat_map(|(_, devices)| devices);
            let cards = self.worth(Unit::Cards, used.chain(more), true);
            1000 * cards / quota.map_or(1, |quota| u64::from(quota.spec.weight))
        };
        share(own, devices) < share(other, &[])
    }

    /// The guarantee of the parent that would be exceeded with these devices.
    pub fn beyond_parent(&self, taken: &Taken, namespace: &str, devices: &[DeviceId]) -> Option<String> {
        let parent = self.of_namespace(namespace).and_then(|team| self.parent(team));
        let Some(parent) = parent else { return Some(format!("nothing: {namespace} has no parent")) };
        let own = self.of_namespace(namespace).and_then(effect_of_spent);
        if own == Some(WhenSpent::LentOnly) {
            return Some(format!("nothing: {namespace} only borrows"));
        }
        self.guaranteed(parent).into_iter().find_map(|amount| {
            let used = self.used(taken, parent, amount, false);
            let more = self.of_amount(amount, devices.iter(), false);
            let most = amount.guaranteed();
            (more > 0 && used + more > most).then(|| format!("{used} and {more} of {most} of its parent"))
        })
    }

    /// Whether the namespaces are of one team, or of teams with one parent.
    pub fn is_family(&self, one: &str, other: &str) -> bool {
        let family = |namespace: &str| {
            self.of_namespace(namespace).map(|quota| name(self.parent(quota).unwrap_or(quota)))
        };
        family(one) == family(other)
    }

    pub fn has_parent_with_guarantee(&self, namespace: &str) -> bool {
        let parent = self.of_namespace(namespace).and_then(|team| self.parent(team));
        parent.is_some_and(|parent| !self.guaranteed(parent).is_empty())
    }

    /// As [`Self::is_within_guarantee`], of the team's parent.
    pub fn is_within_parents_guarantee(&self, taken: &Taken, namespace: &str, devices: &[DeviceId]) -> bool {
        let parent = self.of_namespace(namespace).and_then(|team| self.parent(team));
        parent.is_some_and(|parent| self.is_within(taken, parent, devices))
    }

    /// Whether everything that the team of the namespace uses is within its guarantee, these devices among it.
    pub fn is_within_guarantee(&self, taken: &Taken, namespace: &str, devices: &[DeviceId]) -> bool {
        self.of_namespace(namespace).is_some_and(|team| self.is_within(taken, team, devices))
    }

    fn is_within(&self, taken: &Taken, team: &GpuQuota, devices: &[DeviceId]) -> bool {
        let guaranteed = self.guaranteed(team);
        let is_counted = guaranteed.iter().any(|amount| devices.iter().any(|device| counts(amount, device)));
        is_counted
            && guaranteed.iter().all(|amount| self.used(taken, team, amount, true) <= amount.guaranteed())
    }
}
