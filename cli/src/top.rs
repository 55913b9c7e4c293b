//! Rows of `kubectl gpu top`: cards allocated to nodes, cards, pods and namespaces, and their usage.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use tessera_api::fleet_view::{CardView, FleetView, Holder};

use crate::arguments::{Rows, SortBy};
use crate::output;

/// One row. Cards' worth are sums over cards: a partition counts by its share of the card's memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Subject of the row: a node, `node address`, `namespace/pod`, a namespace.
    pub name: String,
    /// Node of a card or pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Team of a pod or namespace; absent in no GpuQuota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Product of a card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// GpuPool of a card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Cards of a node, or pods of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Worth of allocated cards.
    #[serde(serialize_with = "output::rounded")]
    pub allocated: f64,
    /// Worth of busy multiprocessors, in cards; absent without metrics.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "output::rounded_if_known")]
    pub busy: Option<f64>,
    /// Worth of allocated but idle cards, among cards with metrics.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "output::rounded_if_known")]
    pub idle: Option<f64>,
    /// Memory in use, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_mib: Option<u64>,
    /// Memory of the cards, or memory available to the pods, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Of a card or a node's cards, in watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    /// Of a card, in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<f64>,
    /// Why a card gets no work, or a node has no metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Allocated but not busy; absent without metrics.
fn idle(allocated: u32, busy: Option<f64>) -> Option<f64> {
    busy.map(|busy| (f64::from(allocated) / 1000.0 - busy).max(0.0))
}

/// The rows, sorted.
pub fn rows(
    view: &FleetView,
    rows: Rows,
    node: Option<&str>,
    namespace: Option<&str>,
    sort: Option<SortBy>,
) -> Vec<Row> {
    let teams = view.teams_of_namespaces();
    let nodes = view.nodes.iter().filter(|known| node.is_none_or(|node| known.name == node));
    let mut found: Vec<Row> = match rows {
        Rows::Nodes => nodes.map(of_node).collect(),
        Rows::Cards => nodes
            .flat_map(|node| {
                node.cards.iter().map(|(address, card)| of_card(&node.name, &address.to_string(), card))
            })
            .collect(),
        Rows::Pods => {
            of_holders(nodes, namespace, &teams, |node, holder| (pods_of(holder), Some(node.to_owned())))
        }
        Rows::Namespaces => {
            of_holders(nodes, namespace, &teams, |_, holder| (holder.namespace.clone(), None))
        }
    };
    let by_default = match rows {
        Rows::Nodes | Rows::Cards => SortBy::Name,
        Rows::Pods | Rows::Namespaces => SortBy::Idle,
    };
    let sort = sort.unwrap_or(by_default);
    let most_first = |row: &Row| match sort {
        SortBy::Name => 0.0,
        SortBy::Allocated => row.allocated,
        SortBy::Busy => row.busy.unwrap_or(-1.0),
        SortBy::Idle => row.idle.unwrap_or(-1.0),
        SortBy::Memory => row.memory_used_mib.map_or(-1.0, |used| used as f64),
    };
    found.sort_by(|one, other| {
        most_first(other).total_cmp(&most_first(one)).then_with(|| one.name.cmp(&other.name))
    });
    found
}

/// The pods of a claim. A claim not reserved for any pod has a name of its own.
pub fn pods_of(holder: &Holder) -> String {
    match holder.pods.as_slice() {
        [] => format!("{}/(claim {})", holder.namespace, holder.claim),
        [pod] => format!("{}/{pod}", holder.namespace),
        [pod, others @ ..] => format!("{}/{pod} (+{})", holder.namespace, others.len()),
    }
}

fn of_node(node: &tessera_api::fleet_view::NodeView) -> Row {
    let mut row = Row {
        name: node.name.clone(),
        count: Some(node.cards.len()),
        trouble: node.no_usage.clone(),
        ..Row::default()
    };
    let mut sick = Vec::new();
    for (address, card) in &node.cards {
        let of_card = of_card(&node.name, &address.to_string(), card);
        add(&mut row, &of_card);
        add_to(&mut row.power_watts, of_card.power_watts);
        sick.extend(of_card.trouble.map(|trouble| format!("{address}: {trouble}")));
    }
    if row.trouble.is_none() && !sick.is_empty() {
        row.trouble = Some(sick.join(", "));
    }
    row
}

fn of_card(node: &str, address: &str, card: &CardView) -> Row {
    let usage = card.usage.as_ref();
    Row {
        name: address.to_owned(),
        node: Some(node.to_owned()),
        product: Some(card.product_name.clone()),
        pool: card.pool.clone(),
        allocated: f64::from(card.allocated) / 1000.0,
        busy: usage.and_then(|usage| usage.sm_activity),
        idle: idle(card.allocated, usage.and_then(|usage| usage.sm_activity)),
        memory_used_mib: usage.and_then(|usage| usage.memory_used_mib),
        memory_mib: Some(card.memory_mib),
        power_watts: usage.and_then(|usage| usage.power_watts),
        temperature_celsius: usage.and_then(|usage| usage.temperature_celsius),
        trouble: (!card.taints.is_empty()).then(|| card.taints.join(", ")),
        ..Row::default()
    }
}

fn of_holders<'v>(
    nodes: impl Iterator<Item = &'v tessera_api::fleet_view::NodeView>,
    namespace: Option<&str>,
    teams: &HashMap<&str, &str>,
    name: impl Fn(&str, &Holder) -> (String, Option<String>),
) -> Vec<Row> {
    let mut rows: BTreeMap<String, (Row, HashSet<&str>)> = BTreeMap::new();
    for node in nodes {
        for card in node.cards.values() {
            for holder in
                card.holders.iter().filter(|holder| namespace.is_none_or(|only| only == holder.namespace))
            {
                let (name, node) = name(&node.name, holder);
                let (row, pods) = rows.entry(name.clone()).or_default();
                row.name = name;
                row.node = node;
                row.team = teams.get(holder.namespace.as_str()).map(ToString::to_string);
                add(row, &of_holder(card, holder));
                pods.extend(holder.pods.iter().map(String::as_str));
            }
        }
    }
    let counted = |(mut row, pods): (Row, HashSet<&str>)| {
        row.count = row.node.is_none().then_some(pods.len());
        row
    };
    rows.into_values().map(counted).collect()
}

fn of_holder(card: &CardView, holder: &Holder) -> Row {
    let of_card = || card.usage.as_ref();
    let alone = card.holders.len() == 1;
    let busy = holder.sm_activity.or_else(|| of_card().filter(|_| alone)?.sm_activity);
    Row {
        allocated: f64::from(holder.allocated) / 1000.0,
        busy,
        idle: idle(holder.allocated, busy),
        memory_used_mib: holder.memory_used_mib.or_else(|| of_card().filter(|_| alone)?.memory_used_mib),
        memory_mib: holder.memory_granted_mib,
        ..Row::default()
    }
}

fn add(row: &mut Row, other: &Row) {
    row.allocated += other.allocated;
    add_to(&mut row.busy, other.busy);
    add_to(&mut row.idle, other.idle);
    if let Some(used) = other.memory_used_mib {
        *row.memory_used_mib.get_or_insert(0) += used;
    }
    if let Some(memory) = other.memory_mib {
        *row.memory_mib.get_or_insert(0) += memory;
    }
}

fn add_to(sum: &mut Option<f64>, more: Option<f64>) {
    if let Some(more) = more {
        *sum.get_or_insert(0.0) += more;
    }
}

#[cfg(test)]
mod tests {
    use tessera_api::PciBusId;
    use tessera_api::fleet_view::NodeView;

    use super::*;

    #[test]
    fn a_hundred_thousand_claims_of_one_namespace_are_counted_at_once() {
        let holder = |number: usize| Holder {
            namespace: "team".to_owned(),
            claim: format!("claim-{number}"),
            pods: vec![format!("pod-{number}")],
            allocated: 10,
            sm_activity: Some(0.01),
            ..Holder::default()
        };
        let node = |node: usize| {
            let card = |card: usize| {
                let holders = (0..100).map(|share| holder((node * 10 + card) * 100 + share)).collect();
                let bus = u8::try_from(card).unwrap();
                (PciBusId::new(0, bus, 0, 0).unwrap(), CardView { holders, ..CardView::default() })
            };
            NodeView { name: format!("n{node}"), cards: (0..10).map(card).collect(), ..NodeView::default() }
        };
        let view = FleetView { nodes: (0..100).map(node).collect(), ..FleetView::default() };
        let begun = std::time::Instant::now();
        let namespaces = rows(&view, Rows::Namespaces, None, None, None);
        assert_eq!((namespaces.len(), namespaces[0].count), (1, Some(100_000)));
        assert!((namespaces[0].allocated - 1000.0).abs() < 1e-6, "{}", namespaces[0].allocated);
        assert_eq!(rows(&view, Rows::Pods, None, Some("team"), None).len(), 100_000);
        // Comparing each pod with each takes many minutes.
        assert!(begun.elapsed().as_secs() < 120, "{:?}", begun.elapsed());
    }
}
