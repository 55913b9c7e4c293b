//! Adds the use of cards to their allocation.

use std::collections::{BTreeMap, HashMap};

use tessera_api::fleet_view::{CardView, FleetView, Holder, NodeView, PoolUse};
use tessera_api::usage::{ClaimUsage, NodeUsage};

use super::observed::Observed;
use super::prices::Prices;
use crate::usage::Usages;

/// Adds the reports of the nodes' plugins, earlier observations of claims, and prices.
pub fn merge(view: &mut FleetView, usages: &Usages, observed: &Observed, prices: &Prices) {
    view.currency = (!prices.currency.is_empty()).then(|| prices.currency.clone());
    for node in &mut view.nodes {
        match usages.get(&node.name) {
            Some(Ok(usage)) => of_node(node, usage, observed),
            Some(Err(error)) => node.no_usage = Some(error.clone()),
            None => node.no_usage = Some("no kubelet plugin runs there".to_owned()),
        }
        for card in node.cards.values_mut() {
            card.price_per_hour = prices.of(card);
        }
    }
}

fn of_node(node: &mut NodeView, usage: &NodeUsage, observed: &Observed) {
    let claims: HashMap<(&str, &str), &ClaimUsage> =
        usage.claims.iter().map(|claim| ((&*claim.namespace, &*claim.name), claim)).collect();
    for (address, card) in &mut node.cards {
        card.usage = usage.cards.get(address).cloned();
        if let Some(known) = &card.usage {
            card.memory_mib = known.memory_total_mib.max(card.memory_mib);
            if card.product_name.is_empty() {
                card.product_name.clone_from(&known.product_name);
            }
        }
        for holder in &mut card.holders {
            let claim = claims.get(&(&*holder.namespace, &*holder.claim)).copied();
            let Some(claim) = claim else { continue };
            of_holder(holder, claim);
            if let Some(seen) = observed.of(&node.name, &claim.uid, &holder.device) {
                seen.tell(holder);
            }
        }
    }
}

fn of_holder(holder: &mut Holder, claim: &ClaimUsage) {
    let device = claim.devices.iter().find(|device| device.device == holder.device);
    if let Some(device) = device {
        holder.memory_granted_mib = Some(device.memory_granted_mib);
        holder.memory_used_mib = device.memory_used_mib;
        holder.sm_activity = device.sm_activity;
    }
}

/// Share of the card's multiprocessors in use, 0 to 1; 0 if unknown.
pub fn busy(card: &CardView) -> f64 {
    let busy = card.usage.as_ref().and_then(|usage| usage.sm_activity).filter(|busy| busy.is_finite());
    busy.unwrap_or_default().clamp(0.0, 1.0)
}

/// Cards by GpuPool; cards outside of pools are one entry.
pub fn pools(view: &FleetView) -> Vec<PoolUse> {
    let mut pools: BTreeMap<Option<&str>, PoolUse> = BTreeMap::new();
    for card in view.nodes.iter().flat_map(|node| node.cards.values()) {
        let pool = pools.entry(card.pool.as_deref()).or_default();
        pool.cards += 1;
        pool.allocated += f64::from(card.allocated) / 1000.0;
        pool.busy += busy(card);
        if !pool.allocations.contains(&card.allocation) {
            pool.allocations.push(card.allocation);
        }
    }
    let with_name = |(name, pool): (Option<&str>, PoolUse)| PoolUse {
        name: name.map(str::to_owned),
        allocated: rounded(pool.allocated),
        busy: rounded(pool.busy),
        ..pool
    };
    pools.into_iter().map(with_name).collect()
}

/// Share of the card's multiprocessors kept busy by the holder, 0 to 1. For the only holder of a card, the card's share.
pub fn activity(card: &CardView, holder: &Holder) -> Option<f64> {
    let of_card = || card.usage.as_ref()?.sm_activity;
    let alone = card.holders.len() == 1;
    holder.sm_activity.or_else(|| alone.then(of_card).flatten()).map(|activity| activity.clamp(0.0, 1.0))
}

/// Ten-thousandths are precise enough for readers, and shorter than full floats.
pub fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}
