//! Rows of `kubectl gpu top --idle`: claims whose pods do not use their devices.

use std::collections::BTreeMap;

use serde::Serialize;
use tessera_api::fleet_view::FleetView;

use crate::output;
use crate::top::pods_of;

/// One claim.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub claim: String,
    /// The pods, as shown in the table.
    #[serde(skip)]
    pub name: String,
    /// The pods that have reserved the claim.
    pub pods: Vec<String>,
    /// The node.
    pub node: String,
    /// The devices.
    pub devices: Vec<String>,
    /// Cards' worth of the devices.
    #[serde(serialize_with = "output::rounded")]
    pub allocated: f64,
    /// Time without use, as of the fleet's time.
    pub idle_seconds: u64,
    /// Whether no container of the pods has started.
    pub not_started: bool,
    /// Memory that the pods hold, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_mib: Option<u64>,
    /// Price of the devices in the time without use, in the fleet's currency.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "output::rounded_if_known")]
    pub cost: Option<f64>,
}

/// The idle claims, the longest in cards' worth and time first.
pub fn rows(view: &FleetView, node: Option<&str>, namespace: Option<&str>) -> Vec<Row> {
    let mut rows: BTreeMap<(&str, &str), Row> = BTreeMap::new();
    for known in view.nodes.iter().filter(|known| node.is_none_or(|node| known.name == node)) {
        for card in known.cards.values() {
            for holder in &card.holders {
                let Some(since) = holder.idle_since else { continue };
                if namespace.is_some_and(|namespace| namespace != holder.namespace) {
                    continue;
                }
                let row = rows.entry((&holder.namespace, &holder.claim)).or_default();
                let allocated = f64::from(holder.allocated) / 1000.0;
                let idle_seconds = view.at.saturating_sub(since);
                row.namespace.clone_from(&holder.namespace);
                row.claim.clone_from(&holder.claim);
                row.name = pods_of(holder);
                row.pods.clone_from(&holder.pods);
                row.node.clone_from(&known.name);
                row.devices.push(holder.device.clone());
                row.allocated += allocated;
                (row.idle_seconds, row.not_started) = (idle_seconds, holder.not_started);
                if let Some(used) = holder.memory_used_mib {
                    *row.memory_used_mib.get_or_insert(0) += used;
                }
                if let Some(price) = card.price_per_hour {
                    *row.cost.get_or_insert(0.0) += price * allocated * idle_seconds as f64 / 3600.0;
                }
            }
        }
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    let weight = |row: &Row| row.allocated * row.idle_seconds as f64;
    rows.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
    rows
}
