//! Turns the machine into the pool to publish, and into the health of its devices.

mod driver_away;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tessera_api::{health::HealthPolicy, offer::OfHeldCards};
use tessera_inventory::{
    Machine, Pool, PoolOptions, Warning,
    machine::Health,
    pool::{Held, Slice},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::health_report::{HealthSender, report};
use super::metrics::Metrics;
use super::node_report::{NEEDS_TAINTS, NodeFacts, annotations, cgroup_version, managed_pools};
use crate::{
    discovery::Looks,
    gpu_pools::Resolution,
    layout::LayoutStatus,
    prepare::{DriverFilesState, Preparer},
};
pub use driver_away::DriverAway;
use tessera_dra_kubelet::registration::RegistrationState;
use tessera_publish::{Desired, PoolIdentity, PublishStatus};

/// How often to check whether claims still hold devices published only as allocated, different from the present offer.
const RECHECK: Duration = Duration::from_secs(30);

/// How long the first publication on a node waits for the kubelet to register this instance. Pods waiting for cards
/// are bound the moment slices appear; a kubelet without the driver's registration fails them and tries again only
/// after about a minute. A running kubelet registers a driver within half a second.
const REGISTRATION: Duration = Duration::from_secs(3);

/// How long the first publication on a node waits for static layouts, to offer nothing a layout is about to
/// take away. A layout takes some seconds.
const LAYOUTS: Duration = Duration::from_secs(60);

/// Value of the taint `unhealthy` while an administrator has the cards let go of.
const LET_GO: &str = "let-go";

/// Turns machines into pools.
pub struct PoolMaker {
    /// Name and node of the pool.
    pub identity: PoolIdentity,
    /// Lists the devices held by claims.
    pub preparer: Preparer,
    /// Receives the pools.
    pub pools: watch::Sender<Option<Arc<Desired>>>,
    /// What was published when this instance began; `None` until known.
    pub published_before: watch::Receiver<Option<Arc<[Slice]>>>,
    /// State of the publisher, including feature gates that the API server lacks.
    pub published: watch::Receiver<PublishStatus>,
    /// Receives the devices' health.
    pub health: HealthSender,
    /// Effects of card faults on devices.
    pub policy: HealthPolicy,
    /// When each card was last looked at.
    pub looks: watch::Receiver<Looks>,
    /// State of the cards' static layouts.
    pub layouts: watch::Receiver<LayoutStatus>,
    /// The kubelet's registration of this instance.
    pub registration: watch::Receiver<RegistrationState>,
    /// Where the cards are counted.
    pub metrics: Metrics,
    /// Whether the node has the files of its driver.
    pub driver_files: watch::Receiver<DriverFilesState>,
    /// The machine as resolved by the GPU pools; `None` until both are known.
    pub resolution: watch::Receiver<Option<Arc<Resolution>>>,
    /// Whether an administrator has the cards let go of: they take no new claims meanwhile.
    pub is_let_go: watch::Receiver<bool>,
    /// Signals an unusable driver.
    pub driver_away: DriverAway,
}

impl PoolMaker {
    /// Makes a pool whenever the machine or its offer changes, until `shutdown`.
    ///
    /// Publishes nothing until the last instance's publication is known: devices of cards that have disappeared
    /// since stay published while claims hold them. If nothing was published, waits for the kubelet to register this
    /// instance. If the driver cannot be used, the published devices are kept from claims until the machine can be read.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self {
            identity, preparer, pools, health, policy, looks, registration, metrics, driver_away, ..
        } = self;
        let (mut layouts, mut resolutions) = (self.layouts, self.resolution);
        let mut before = self.published_before;
        let mut status_of_published = self.published;
        let mut driver_files = self.driver_files;
        let mut is_let_go = self.is_let_go;
        let mut work_on_claims = preparer.done();
        let mut taints_are_kept = true;
        let cgroup_version = cgroup_version();
        // The last publication: by the previous instance, then by this one.
        let mut published: Option<Arc<[Slice]>> = None;
        let mut first = None;
        let mut told = BTreeSet::new();
        let mut away = Box::pin(driver_away.wait());
        let (mut is_away, mut is_away_told) = (false, false);
        let mut known = Box::pin(tokio::time::timeout(REGISTRATION, registered(registration)));
        let mut kubelet_knows = false;
        let mut waited = Box::pin(tokio::time::sleep(LAYOUTS));
        let mut layouts_settled = false;
        let mut layouts_may_change = true;
        loop {
            let resolution = resolutions.borrow_and_update().clone();
            let earlier = before.borrow().clone().filter(|before| is_away && !before.is_empty());
            let mut recheck = false;
            let mut follows_claims = false;
            if let Some(resolution) = resolution {
                let machine = &*resolution.machine;
                let mut offers =
                    machine.cards.iter().map(|card| &resolution.offers.of(card.pci).offer.partitioning);
                follows_claims = offers.any(|partitioning| partitioning.of_held_cards == OfHeldCards::First);
                work_on_claims.mark_unchanged();
                let held = held(published.as_deref().unwrap_or_default(), &preparer).await;
                let options = PoolOptions {
                    held,
                    offers: resolution.offers.clone(),
                    health: policy.clone(),
                    ..PoolOptions::new(&identity.driver_name)
                };
                let status = layouts.borrow_and_update().clone();
                layouts_settled |= status.settled;
                let mut offered = status.offered(machine);
                if *is_let_go.borrow_and_update() {
                    keep_away(&mut offered);
                }
                let pool = Pool::new(&offered, &options);
                let after_claims = PoolOptions { held: Held::default(), ..options };
                recheck = pool.slices != Pool::new(&offered, &after_claims).slices;
                tell(warnings(&pool.warnings, &resolution, taints_are_kept), &mut told);
                let present = machine.cards.iter().filter(|card| card.health.answers()).count();
                metrics.cards.set(i64::try_from(present).unwrap_or(i64::MAX));
                let report = report(&identity.pool_name, &pool, machine, &policy, &looks.borrow());
                health.send_replace(Some(report));
                first = first.or_else(|| published.as_ref().map(|published| published.is_empty()));
                if first.is_some_and(|first| !first || (kubelet_knows && layouts_settled)) {
                    let unsafe_container_toolkit = driver_files.borrow_and_update().unsafe_tool.clone();
                    let of_node = NodeFacts { cgroup_version, unsafe_container_toolkit };
                    let annotations =
                        annotations(&resolution, &pool.no_longer_offered, taints_are_kept, of_node, &status);
                    let desired = Desired { slices: pool.slices, annotations };
                    if pools.borrow().as_deref() != Some(&desired) {
                        published = Some(desired.slices.as_slice().into());
                        pools.send_replace(Some(Arc::new(desired)));
                    }
                }
            } else if let Some(earlier) = earlier {
                let pool = driver_away::lost(&earlier, &identity.driver_name, &policy);
                let machine = driver_away::lost_machine(&pool);
                health.send_replace(Some(report(
                    &identity.pool_name,
                    &pool,
                    &machine,
                    &policy,
                    &looks.borrow(),
                )));
                recheck = true;
                if !std::mem::replace(&mut is_away_told, true) {
                    let slices = pool.slices.clone();
                    pools.send_replace(Some(Arc::new(Desired { slices, ..Desired::default() })));
                    driver_away.tell(&pool).await;
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = resolutions.changed() => if changed.is_err() { return },
                Ok(before) = before.wait_for(Option::is_some), if published.is_none() => {
                    published = before.clone();
                }
                () = &mut away, if !is_away => is_away = true,
                _ = &mut known, if !kubelet_knows => kubelet_knows = true,
                changed = layouts.changed(), if layouts_may_change => layouts_may_change = changed.is_ok(),
                status = status_of_published.wait_for(|status| status.keeps_taints() != taints_are_kept) => {
                    // The sender lives as long as the plugin: an error means the plugin is ending.
                    let Ok(status) = status else { return };
                    taints_are_kept = status.keeps_taints();
                }
                // The senders live as long as the plugin.
                Ok(()) = driver_files.changed() => {}
                Ok(()) = is_let_go.changed() => {}
                Ok(()) = work_on_claims.changed(), if follows_claims => {}
                () = &mut waited, if !layouts_settled => layouts_settled = true,
                () = tokio::time::sleep(RECHECK), if recheck => {}
            }
        }
    }
}

/// Keeps new claims from all cards while an administrator needs them.
fn keep_away(machine: &mut Machine) {
    for card in machine.cards.iter_mut().filter(|card| card.health == Health::Healthy) {
        card.health = Health::Unhealthy { reason: LET_GO.to_owned() };
    }
}

/// Waits until the kubelet has registered this instance.
async fn registered(mut registration: watch::Receiver<RegistrationState>) {
    // The sender lives as long as the plugin: an error means the plugin is ending.
    let _ = registration.wait_for(|state| *state == RegistrationState::Registered).await;
}

/// The last published devices, by this process or the one before, that prepared claims hold. All of them
/// if the claims can't be read: better too many than one too few.
async fn held(published: &[Slice], preparer: &Preparer) -> Held {
    if published.is_empty() {
        return Held::default();
    }
    let names = preparer.held_devices().await;
    if let Err(error) = &names {
        tracing::warn!(%error, "cannot tell which devices claims hold");
    }
    let is_held = |name: &str| names.as_ref().ok().is_none_or(|names| names.contains(name));
    Held::new(published, is_held)
}

/// Warnings to log: parts of the machine that could not be published, and features missing in the API server.
fn warnings(of_machine: &[Warning], resolution: &Resolution, taints_are_kept: bool) -> BTreeSet<String> {
    let mut warnings: BTreeSet<String> = of_machine.iter().map(ToString::to_string).collect();
    if !taints_are_kept {
        let pools = managed_pools(resolution).into_iter();
        warnings.extend(pools.map(|pool| format!("GPU pool {pool}: {NEEDS_TAINTS}")));
    }
    warnings
}

/// Logs each warning once while it lasts.
fn tell(now: BTreeSet<String>, told: &mut BTreeSet<String>) {
    for warning in now.difference(told) {
        tracing::warn!("{warning}");
    }
    *told = now;
}
