//! What cards do, added to what is allocated of them.

use tessera_api::fleet_view::{CardView, FleetView, Holder, NodeView};
use tessera_api::usage::NodeUsage;

use crate::usage::Usages;

/// Adds what the nodes' plugins say.
pub fn merge(view: &mut FleetView, usages: &Usages) {
    for node in &mut view.nodes {
        match usages.get(&node.name) {
            Some(Ok(usage)) => of_node(node, usage),
            Some(Err(error)) => node.no_usage = Some(error.clone()),
            None => node.no_usage = Some("no kubelet plugin runs there".to_owned()),
        }
    }
}

fn of_node(node: &mut NodeView, usage: &NodeUsage) {
    for (address, card) in &mut node.cards {
        card.usage = usage.cards.get(address).cloned();
        if let Some(known) = &card.usage {
            card.memory_mib = known.memory_total_mib.max(card.memory_mib);
            if card.product_name.is_empty() {
                card.product_name.clone_from(&known.product_name);
            }
        }
        for holder in &mut card.holders {
            of_holder(holder, usage);
        }
    }
}

fn of_holder(holder: &mut Holder, usage: &NodeUsage) {
    let mut claims = usage.claims.iter();
    let claim = claims.find(|claim| claim.namespace == holder.namespace && claim.name == holder.claim);
    let device = claim.and_then(|claim| claim.devices.iter().find(|device| device.device == holder.device));
    if let Some(device) = device {
        holder.memory_granted_mib = Some(device.memory_granted_mib);
        holder.memory_used_mib = device.memory_used_mib;
        holder.sm_activity = device.sm_activity;
    }
}

/// Share of the card's multiprocessors that the holder kept busy, 0 to 1; that of the card where it has no other holder.
pub fn activity(card: &CardView, holder: &Holder) -> Option<f64> {
    let of_card = || card.usage.as_ref()?.sm_activity;
    let alone = card.holders.len() == 1;
    holder.sm_activity.or_else(|| alone.then(of_card).flatten()).map(|activity| activity.clamp(0.0, 1.0))
}
