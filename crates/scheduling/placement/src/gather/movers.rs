//! Pods with devices: what they hold, since when, and why some cannot move.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::jiff::Timestamp;
use tessera_api::PciBusId;
use tessera_cluster::gang::{self, GangId};
use tessera_cluster::usage::is_daemon;
use tessera_cluster::{ClaimExt, Cluster, Key, Objects, PodExt};

use crate::demand::Demand;
use crate::fleet::{Fleet, NodeIndex};
use crate::node_cards::Part;

/// Why pods cannot move.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    /// No pod of the claim is known.
    #[error("no pod of claim {0} is known")]
    NoPod(Key),
    /// Several pods use the claim.
    #[error("claim {0} is shared by several pods")]
    Shared(Key),
    /// Nobody would make the pod anew.
    #[error("nothing would make it anew: it has no controller")]
    NoOwner,
    /// The pod's Job would fail.
    #[error("its eviction ends Job {0}")]
    JobEnds(String),
    /// The pod belongs to its node.
    #[error("it belongs to its node: of a DaemonSet, or static")]
    OfNode,
    /// The pod is ending, and its devices will be free without a move.
    #[error("it is ending already")]
    Ending,
    /// The budget allows no eviction at present.
    #[error("PodDisruptionBudget {0} allows no eviction now")]
    Budget(Key),
    /// Another obstacle to a successor.
    #[error("{0}")]
    Obstacle(String),
}

/// A device, or a share of one.
#[derive(Debug, Clone)]
pub struct HeldDevice {
    /// Index of its pod among those of the mover.
    pub pod: usize,
    /// Its node.
    pub node: NodeIndex,
    /// Its name.
    pub name: String,
    pub(super) card: PciBusId,
    pub(super) slices: u64,
    /// Thousandths of the card.
    pub(super) worth: u32,
    pub(super) is_share: bool,
}

/// A running pod.
#[derive(Debug, Clone)]
pub struct Runner {
    /// Its name.
    pub key: Key,
    /// The needs of its successor.
    pub demand: Demand,
    /// When it started.
    pub since: Option<Timestamp>,
    /// Thousandths of a card, times seconds since it started.
    pub lost: u64,
}

/// Pods that move together: a gang, or one pod.
#[derive(Debug, Clone, Default)]
pub struct Mover {
    /// Its pods with devices; empty for a claim without a known pod.
    pub pods: Vec<Runner>,
    /// Their claims.
    pub claims: Vec<Key>,
    /// Their devices.
    pub devices: Vec<HeldDevice>,
    /// Running time of cards lost by moving: thousandths of a card, times seconds.
    pub lost: u64,
    /// Why it cannot move, if so.
    pub stays: Option<Stays>,
}

/// Pods of one mover.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Together {
    Gang(GangId),
    Pod(Key),
}

/// What a pod holds.
#[derive(Default)]
struct Holding {
    devices: Vec<HeldDevice>,
    shared: Option<Stays>,
}

/// All holders of the driver's devices. `now`: the end of the running times.
pub fn movers(cluster: &Cluster, fleet: &mut Fleet, driver: &str, now: Timestamp) -> Vec<Mover> {
    let objects = cluster.objects();
    let mut movers = Vec::new();
    let mut pods: BTreeMap<Key, Holding> = BTreeMap::new();
    for (key, claim) in &objects.claims {
        let devices = devices(claim, cluster, fleet, driver);
        if devices.is_empty() {
            continue;
        }
        let mut users: Vec<Key> = claim.users().iter().map(|user| key.with_name(&user.name)).collect();
        users.extend(claim.owning_pod().filter(|_| users.is_empty()).map(|pod| key.with_name(pod)));
        let is_shared = users.len() > 1;
        users.retain(|user| objects.pods.contains_key(user));
        let Some(first) = users.first() else {
            let stays = Some(Stays::NoPod(key.clone()));
            movers.push(Mover { claims: vec![key.clone()], devices, stays, ..Mover::default() });
            continue;
        };
        pods.entry(first.clone()).or_default().devices.extend(devices);
        for user in users.iter().filter(|_| is_shared) {
            pods.entry(user.clone()).or_default().shared = Some(Stays::Shared(key.clone()));
        }
    }
    let mut together: BTreeMap<Together, Mover> = BTreeMap::new();
    for (key, holding) in pods {
        let Some(pod) = objects.pods.get(&key) else { continue };
        let (group, unclear) = match gang::of_pod(objects, pod) {
            Ok(Some(member)) => (Together::Gang(member.gang), None),
            Ok(None) => (Together::Pod(key.clone()), None),
            Err(error) => (Together::Pod(key.clone()), Some(Stays::Obstacle(error.to_string()))),
        };
        let demand = match Demand::of_successor(objects, pod) {
            Ok(demand) => demand,
            Err(error) => {
                let stays = Some(Stays::Obstacle(error.to_string()));
                movers.push(Mover { devices: holding.devices, stays, ..Mover::default() });
                continue;
            }
        };
        let mover = together.entry(group).or_default();
        let place = mover.pods.len();
        let of_pod = holding.devices.into_iter().map(|device| HeldDevice { pod: place, ..device });
        let before = mover.devices.len();
        mover.devices.extend(of_pod);
        let since = since(pod);
        let seconds = since.map_or(0, |since| now.as_second().saturating_sub(since.as_second()).max(0));
        let worth: u64 = mover.devices[before..].iter().map(|device| u64::from(device.worth)).sum();
        let lost = worth.saturating_mul(seconds.unsigned_abs());
        mover.lost = mover.lost.saturating_add(lost);
        let claims = demand.subject.claims.iter().map(|wanted| Key::from(&wanted.claim.metadata));
        mover.claims.extend(claims);
        if mover.stays.is_none() {
            mover.stays = holding.shared.or(unclear).or_else(|| stays(objects, pod, &demand));
        }
        mover.pods.push(Runner { key, demand, since, lost });
    }
    movers.extend(together.into_values().map(|mut mover| {
        let pods = mover.pods.iter().map(|pod| &pod.key);
        mover.stays = mover.stays.or_else(|| exceeded(objects, pods).map(Stays::Budget));
        mover
    }));
    movers
}

/// The PodDisruptionBudget that these pods together exceed, if any, or a pod's second one: the API server evicts no pod of two.
pub(super) fn exceeded<'k>(objects: &Objects, pods: impl Iterator<Item = &'k Key>) -> Option<Key> {
    let mut taken: BTreeMap<&Key, u32> = BTreeMap::new();
    let pods: BTreeSet<&Key> = pods.collect();
    for pod in pods.into_iter().filter_map(|key| objects.pods.get(key)) {
        if let Some((second, _)) = objects.budgets_of(pod).nth(1) {
            return Some(second.clone());
        }
        for (key, budget) in objects.budgets_of(pod) {
            let taken = taken.entry(key).or_default();
            *taken += 1;
            if *taken > budget.status.disruptions_allowed {
                return Some(key.clone());
            }
        }
    }
    None
}

fn since(pod: &Pod) -> Option<Timestamp> {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    started.or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

fn stays(objects: &Objects, pod: &Pod, demand: &Demand) -> Option<Stays> {
    let owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
    if is_daemon(pod) || controller.is_some_and(|owner| owner.kind == "Node") {
        return Some(Stays::OfNode);
    }
    let Some(controller) = controller else { return Some(Stays::NoOwner) };
    let job = objects.jobs.get(&pod.key().with_name(&controller.name)).filter(|_| controller.kind == "Job");
    if job.is_some_and(|job| !job.spec.survives_evictions()) {
        return Some(Stays::JobEnds(controller.name.clone()));
    }
    if pod.has_ended() {
        return Some(Stays::Ending);
    }
    demand.obstacle().map(|obstacle| Stays::Obstacle(obstacle.to_string()))
}

/// The driver's devices held by the claim.
fn devices(claim: &ResourceClaim, cluster: &Cluster, fleet: &mut Fleet, driver: &str) -> Vec<HeldDevice> {
    let mut devices = Vec::new();
    let results = claim.results().iter();
    for result in results.filter(|result| result.driver == driver && result.admin_access != Some(true)) {
        let Some(device) = cluster.inventory().find(driver, &result.pool, &result.device).next() else {
            continue;
        };
        let Some(node) = device.node_name().and_then(|node| fleet.find(node)) else { continue };
        let Some(part) = Part::of(device) else { continue };
        let worth = fleet.cards(node, cluster, driver).worths(cluster, device, &[result]);
        devices.push(HeldDevice {
            pod: 0,
            node,
            name: result.device.clone(),
            card: part.card,
            slices: part.slices,
            worth: worth.first().copied().unwrap_or_default(),
            is_share: result.share_id.is_some(),
        });
    }
    devices
}
