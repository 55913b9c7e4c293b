//! From the machine to what shall be published of it, and to the health of the devices.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tessera_api::NodeConfig;
use tessera_inventory::{
    Machine, PackedPool, PoolOptions, Warning,
    pool::{Held, PackedContents, PackedSlice},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::health_report::{HealthSender, report};
use super::metrics::Metrics;
use crate::{discovery::Looks, layout::LayoutStatus, prepare::Preparer};
use tessera_dra_kubelet::registration::RegistrationState;
use tessera_publish::PoolIdentity;

/// How often to see whether devices that are no longer offered are still held.
const RECHECK: Duration = Duration::from_secs(30);

/// How long the first publication on a node waits for the kubelet to register this instance. Pods that wait for cards
/// are bound the moment slices appear, and a kubelet that does not know the driver yet fails them and looks again after
/// about a minute. A kubelet that runs registers within half a second.
const REGISTRATION: Duration = Duration::from_secs(3);

/// How long the first publication on a node waits for static layouts to be made, so that nothing is offered that they
/// take away again. A layout takes some seconds.
const LAYOUTS: Duration = Duration::from_secs(60);

/// Makes pools of machines.
pub struct PoolMaker {
    /// Which pool.
    pub identity: PoolIdentity,
    /// Who knows what claims hold.
    pub preparer: Preparer,
    /// Where the pools go.
    pub pools: watch::Sender<Option<Arc<tessera_publish::Pool>>>,
    /// What was published when this instance began; `None` until that is known.
    pub published_before: watch::Receiver<Option<Arc<[tessera_publish::Contents]>>>,
    /// Where the devices' health goes.
    pub health: HealthSender,
    /// When which cards were looked at.
    pub looks: watch::Receiver<Looks>,
    /// How far the cards' static layouts are.
    pub layouts: watch::Receiver<LayoutStatus>,
    /// What the kubelet says of this instance.
    pub registration: watch::Receiver<RegistrationState>,
    /// Where the cards are counted.
    pub metrics: Metrics,
    /// What the node offers; `None` until that is known.
    pub node_config: watch::Receiver<Option<Arc<NodeConfig>>>,
}

impl PoolMaker {
    /// Makes a pool whenever the machine changed, until `shutdown`.
    ///
    /// Nothing is published before it is known what was published by the last instance: devices of cards that have gone
    /// since are published on while claims hold them. Where nothing was, the kubelet is to know this instance first.
    pub async fn run(self, mut machines: watch::Receiver<Option<Arc<Machine>>>, shutdown: CancellationToken) {
        let Self { identity, preparer, pools, health, looks, registration, metrics, .. } = self;
        let (mut layouts, mut node_config) = (self.layouts, self.node_config);
        let mut before = self.published_before;
        // What was published last: by the instance before, then by this one.
        let mut published: Option<Vec<PackedContents>> = None;
        let mut first = None;
        let mut told = BTreeSet::new();
        let mut known = Box::pin(tokio::time::timeout(REGISTRATION, registered(registration)));
        let mut kubelet_knows = false;
        let mut waited = Box::pin(tokio::time::sleep(LAYOUTS));
        let mut layouts_settled = false;
        let mut layouts_may_change = true;
        loop {
            let machine = machines.borrow_and_update().clone();
            let config = node_config.borrow_and_update().clone();
            let mut recheck = false;
            if let (Some(machine), Some(config)) = (machine, config) {
                let held = held(published.as_deref().unwrap_or_default(), &preparer).await;
                let options = PoolOptions {
                    held,
                    config: (*config).clone(),
                    ..PoolOptions::new(&identity.driver_name)
                };
                let status = layouts.borrow_and_update().clone();
                layouts_settled |= status.settled;
                let pool = PackedPool::new(&status.offered(&machine), &options);
                recheck = pool.no_longer_offered > 0;
                tell(&pool.warnings, &mut told);
                let present = machine.cards.iter().filter(|card| card.health.answers()).count();
                metrics.cards.set(i64::try_from(present).unwrap_or(i64::MAX));
                let report = report(&identity.pool_name, &pool, &machine, &looks.borrow());
                health.send_replace(Some(report));
                first = first.or_else(|| published.as_ref().map(Vec::is_empty));
                if first.is_some_and(|first| !first || (kubelet_knows && layouts_settled)) {
                    let wanted = to_publish(&pool);
                    let new = pools.send_if_modified(|sent| {
                        let changed = sent.as_deref() != Some(&wanted);
                        if changed {
                            *sent = Some(Arc::new(wanted));
                        }
                        changed
                    });
                    if new {
                        published = Some(pool.slices.into_iter().map(|slice| slice.contents).collect());
                    }
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = machines.changed() => if changed.is_err() { return },
                // The sender may be done, where nothing can change.
                Ok(()) = node_config.changed() => {}
                Ok(before) = before.wait_for(Option::is_some), if published.is_none() => {
                    published = before.as_ref().map(|before| before.iter().map(packed).collect());
                }
                _ = &mut known, if !kubelet_knows => kubelet_knows = true,
                changed = layouts.changed(), if layouts_may_change => layouts_may_change = changed.is_ok(),
                () = &mut waited, if !layouts_settled => layouts_settled = true,
                () = tokio::time::sleep(RECHECK), if recheck => {}
            }
        }
    }
}

/// Waits until the kubelet has registered this instance.
async fn registered(mut registration: watch::Receiver<RegistrationState>) {
    // The sender lives as long as the plugin: an error means that it ends.
    let _ = registration.wait_for(|state| *state == RegistrationState::Registered).await;
}

/// Of the devices published last, by this process or else by the one before it, those that prepared claims hold. Where
/// that can't be read, all: rather too many than one too few.
async fn held(published: &[PackedContents], preparer: &Preparer) -> Held {
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

/// `pool` as the publisher takes it; the texts are shared.
fn to_publish(pool: &PackedPool) -> tessera_publish::Pool {
    let slice = |PackedSlice { name_suffix, contents }: &PackedSlice| tessera_publish::Slice {
        name_suffix: name_suffix.clone(),
        contents: if contents.is_shared_counters() {
            tessera_publish::Contents::SharedCounters { json: Arc::clone(contents.json()) }
        } else {
            let (count, json) = (contents.device_names().len(), Arc::clone(contents.json()));
            tessera_publish::Contents::Devices { count, json }
        },
    };
    tessera_publish::Pool { slices: pool.slices.iter().map(slice).collect() }
}

/// What the publisher found of an earlier instance, as [`Held`] takes it.
fn packed(published: &tessera_publish::Contents) -> PackedContents {
    match published.shared_counters() {
        sets if sets.is_empty() => PackedContents::of_devices(&published.devices()),
        sets => PackedContents::of_shared_counters(&sets),
    }
}

/// Logs each warning once for as long as it lasts.
fn tell(warnings: &[Warning], told: &mut BTreeSet<String>) {
    let now: BTreeSet<String> = warnings.iter().map(ToString::to_string).collect();
    for warning in now.difference(told) {
        tracing::warn!("{warning}");
    }
    *told = now;
}
