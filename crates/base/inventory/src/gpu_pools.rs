//! Decides for each card of a machine which GpuPool applies, and how the card is offered. Called by the kubelet plugin on a node,
//! and by the simulator for hypothetical machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tessera_api::gpu_pool::precedence;
use tessera_api::kubernetes::{KubernetesVersion, SLOW_FROM_NODES};
use tessera_api::node_report::{CardReport, LAYOUT, PoolReport};
use tessera_api::offer::Mps;
use tessera_api::{GpuPoolSpec, Offer, PciBusId};
use tessera_cel::{Environment, PublishedAttribute, Selector};

use crate::Machine;
use crate::machine::Card;
use crate::pool::{CardOffer, CardOffers, whole_cards};

/// Longest error in a report, in characters.
const LONGEST_ERROR: usize = 512;

/// Known facts of a GpuPool.
#[derive(Clone, Copy, Debug, Default)]
pub struct GpuPool<'p> {
    /// Creation time of the object, to decide among pools of the same priority; `None` comes first.
    pub created: Option<&'p Time>,
    /// Its last readable spec; `None` if there never was one.
    pub spec: Option<&'p GpuPoolSpec>,
    /// The error of reading its present spec; `None` for a readable spec.
    pub error: Option<&'p str>,
}

/// Decisions of the pools on the cards of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolution {
    /// The machine.
    pub machine: Arc<Machine>,
    /// Offer of each card.
    pub offers: CardOffers,
    /// Names of the MIG layouts wanted on cards.
    pub layouts: BTreeMap<PciBusId, String>,
    /// The node's report on each card, without the claims still to end.
    pub cards: BTreeMap<PciBusId, CardReport>,
    /// The node's report on pools with errors.
    pub pools: BTreeMap<String, PoolReport>,
    /// `gitVersion` of the API server.
    pub kubernetes: String,
    /// The node's report about cards offered whole alone for want of a pool, though they could be partitioned.
    pub advice: Option<String>,
}

/// Limit for the advice against smaller shares, bytes.
const SMALL_SHARE: u64 = 1 << 30;

/// Limit for the advice against more shares of one card or partition.
const MANY_SHARES: u64 = 32;

/// A pool whose selector matches the node.
struct Candidate<'a> {
    name: &'a str,
    pool: &'a GpuPool<'a>,
    spec: &'a GpuPoolSpec,
    offer: CardOffer,
    /// `None` takes every card.
    cards: Option<Result<Selector, String>>,
}

/// Decides on each card of `machine`, on a node with these labels, by these pools, by name. `has_layouts` says whether a file of
/// MIG layouts exists. `kubernetes` is the API server's own `gitVersion`: cards without a pool are offered in partitions from 1.37 on.
/// An invalid version counts as the oldest one.
#[must_use]
pub fn resolve(
    driver_name: &str,
    labels: &BTreeMap<String, String>,
    pools: &BTreeMap<&str, GpuPool<'_>>,
    machine: &Arc<Machine>,
    has_layouts: bool,
    kubernetes: &str,
) -> Resolution {
    let mut candidates: Vec<Candidate<'_>> = pools
        .iter()
        .filter_map(|(name, pool)| {
            let spec = pool.spec.filter(|spec| spec.selects_node(labels))?;
            let offer = CardOffer {
                pool: Some((*name).to_owned()),
                offer: Arc::new(spec.offer.clone()),
                allocation: spec.allocation,
            };
            // Kubernetes does not read these: the rules are those of new expressions in the newest known release,
            // regardless of the cluster's release.
            let compile = |text: &String| {
                Selector::compile_new(text, Environment::default()).map_err(|error| error.to_string())
            };
            Some(Candidate { name, pool, spec, offer, cards: spec.cards.as_ref().map(compile) })
        })
        .collect();
    candidates.sort_by(|one, other| {
        precedence(
            (one.spec.priority, &one.pool.created, one.name),
            (other.spec.priority, &other.pool.created, other.name),
        )
    });

    let version = KubernetesVersion::of(kubernetes).unwrap_or(KubernetesVersion::V1_36_3);
    let mut resolution = Resolution {
        machine: Arc::clone(machine),
        offers: Offer::without_pool(version).into(),
        kubernetes: kubernetes.to_owned(),
        ..Resolution::default()
    };
    for (name, pool) in pools.iter().filter(|(_, pool)| pool.spec.is_none()) {
        resolution.error(name, pool.error.unwrap_or("its spec cannot be read"));
    }
    for Candidate { name, pool, spec, cards, .. } in &candidates {
        if let Some(error) = pool.error {
            resolution.error(name, &format!("its spec cannot be read, and the last one holds: {error}"));
        }
        if let Some(Err(error)) = cards {
            resolution.error(name, &format!("cards: {error}"));
        }
        let names_layout = spec.offer.layout.is_some() || spec.offer.layout_from_node_label.is_some();
        if names_layout && !has_layouts {
            resolution.error(name, &format!("{LAYOUT}there is no file of layouts (the chart's migLayouts)"));
        }
    }
    let views = match candidates.iter().any(|candidate| candidate.cards.is_some()) {
        true => whole_cards(machine, driver_name),
        false => BTreeMap::new(),
    };
    let views: BTreeMap<PciBusId, Result<tessera_cel::Device, String>> =
        views.iter().map(|(card, device)| (*card, view(driver_name, device))).collect();
    for card in machine.cards_by_address() {
        let mut report = CardReport::default();
        for candidate in &candidates {
            match candidate.takes(views.get(&card.pci)) {
                Ok(false) => {}
                Ok(true) if report.pool.is_some() => report.outranked.push(candidate.name.to_owned()),
                Ok(true) => {
                    report.pool = Some(candidate.name.to_owned());
                    report.allocation = candidate.spec.allocation;
                    report.placement = candidate.spec.placement.clone();
                    report.idle = candidate.spec.idle.clone();
                    let offer = &candidate.spec.offer;
                    report.on_overuse = offer.sharing.on_overuse;
                    let label = offer.layout_from_node_label.as_ref().and_then(|key| labels.get(key));
                    let layout = label.filter(|name| !name.is_empty()).or(offer.layout.as_ref());
                    if let Some(layout) = layout.filter(|_| has_layouts) {
                        resolution.layouts.insert(card.pci, layout.clone());
                    }
                    resolution.offers.set(card.pci, candidate.offer.clone());
                    if let Some(advice) = offer.sharing.mps.as_ref().and_then(|mps| share_advice(card, mps)) {
                        let said = resolution.pools.entry(candidate.name.to_owned()).or_default();
                        said.advice.get_or_insert(advice);
                    }
                }
                Err(error) => resolution.error(candidate.name, &format!("cards, for {}: {error}", card.pci)),
            }
        }
        resolution.cards.insert(card.pci, report);
    }
    resolution.advice = whole_only_advice(&resolution, version);
    resolution
}

impl Resolution {
    /// Reports an error of a pool, unless the pool already has one.
    fn error(&mut self, pool: &str, error: &str) {
        let report = self.pools.entry(pool.to_owned()).or_default();
        report.error.get_or_insert_with(|| error.chars().take(LONGEST_ERROR).collect());
    }
}

/// Advice about cards offered whole alone for want of a pool, though they could be partitioned.
fn whole_only_advice(resolution: &Resolution, version: KubernetesVersion) -> Option<String> {
    if !version.counters_cost_every_node() {
        return None;
    }
    let can_be_partitioned = |card: &&Card| card.mig.as_ref().is_some_and(|mig| !mig.profiles.is_empty());
    let has_no_pool =
        |card: &&Card| resolution.cards.get(&card.pci).is_some_and(|report| report.pool.is_none());
    let cards = resolution.machine.cards_by_address();
    let count = cards.into_iter().filter(can_be_partitioned).filter(has_no_pool).count();
    (count > 0).then(|| {
        format!(
            "{count} of its cards are offered whole and not in partitions: no GpuPool selects them, and the API server is {}. A GpuPool offers \
             partitions; from some {SLOW_FROM_NODES} such nodes on kube-scheduler before Kubernetes 1.37 becomes slow with them",
            match resolution.kubernetes.as_str() {
                "" => "of an unknown version",
                version => version,
            }
        )
    })
}

/// Advice on MPS shares of a card and its partitions, for very small shares or very many. Each program's
/// CUDA context takes 300 to 500 MB of its share, regardless of the program's work.
fn share_advice(card: &Card, mps: &Mps) -> Option<String> {
    let shares = u64::from(mps.default_shares.max(1));
    let profiles = card.mig.iter().flat_map(|mig| &mig.profiles);
    let partitions = profiles.filter(|profile| mps.partitions.contains(&profile.name));
    let partitions = partitions.map(|profile| (&*profile.name, profile.memory_bytes));
    let whole = card.memory_bytes.filter(|_| mps.cards).map(|bytes| ("card", bytes));
    let (what, memory) = whole.into_iter().chain(partitions).min_by_key(|(_, bytes)| *bytes)?;
    let each = memory / shares;
    let is_small = each < SMALL_SHARE;
    if !is_small && shares <= MANY_SHARES {
        return None;
    }
    Some(format!(
        "offer.sharing.mps.defaultShares: each of {shares} shares of a {what} has {} MiB, of which the CUDA context of each program \
         takes 300 to 500 MB{}",
        each >> 20,
        if shares > MANY_SHARES {
            format!("; more than {MANY_SHARES} hardly get anything done")
        } else {
            String::new()
        }
    ))
}

impl Candidate<'_> {
    /// Whether the pool selects the card with this view. An expression with a compile error selects none, and was reported.
    fn takes(&self, view: Option<&Result<tessera_cel::Device, String>>) -> Result<bool, String> {
        let selector = match &self.cards {
            None => return Ok(true),
            Some(Err(_)) => return Ok(false),
            Some(Ok(selector)) => selector,
        };
        let view = view.ok_or("the card is not known")?.as_ref().map_err(Clone::clone)?;
        selector.matches(view).map_err(|error| error.to_string())
    }
}

/// A published device in the form for selectors.
fn view(driver_name: &str, device: &Device) -> Result<tessera_cel::Device, String> {
    let attributes = device.attributes.iter().flatten();
    let attributes = attributes.map(|(name, value)| (name.clone(), attribute(value))).collect();
    let capacity = device.capacity.iter().flatten();
    let capacity = capacity.map(|(name, capacity)| (name.clone(), capacity.value.0.clone())).collect();
    tessera_cel::Device::new(driver_name)
        .with_attributes(&attributes, false)
        .with_capacity(&capacity)
        .map_err(|error| error.to_string())
}

/// Our own devices have no lists.
fn attribute(value: &DeviceAttribute) -> PublishedAttribute {
    match value {
        DeviceAttribute { int: Some(value), .. } => PublishedAttribute::Int(*value),
        DeviceAttribute { bool: Some(value), .. } => PublishedAttribute::Bool(*value),
        DeviceAttribute { string: Some(value), .. } => PublishedAttribute::String(value.clone()),
        DeviceAttribute { version: Some(value), .. } => PublishedAttribute::Version(value.clone()),
        _ => PublishedAttribute::Unknown,
    }
}

#[cfg(test)]
mod tests;
