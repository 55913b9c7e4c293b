//! The tables of the page.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use tessera_api::fleet_view::{FleetView, Holder, NamespaceDay, NodeView, WaitingPod, cards, memory};

use crate::fleet_page::merge;
use crate::fleet_page::words::{age, percent, span};

/// Maximum rows of a table. The page gives the number of further rows, and the JSON has all.
const MOST_ROWS: usize = 200;

/// Maximum devices and pods named in a row.
const MOST_NAMES: usize = 2;

/// A claim with devices.
#[derive(Default)]
struct Row<'v> {
    pods: BTreeSet<&'v str>,
    nodes: BTreeSet<&'v str>,
    devices: Vec<&'v str>,
    pools: BTreeSet<&'v str>,
    /// Thousandths of cards.
    allocated: u64,
    /// Part of the allocation with known activity, in thousandths of cards.
    measured: u64,
    /// Busy multiprocessors, in cards' worth.
    busy: f64,
    memory_used_mib: Option<u64>,
    memory_mib: Option<u64>,
    /// As of [`Holder::idle_since`].
    idle_since: Option<u64>,
}

impl<'v> Row<'v> {
    fn add(&mut self, holder: &'v Holder, activity: Option<f64>) {
        self.pods.extend(holder.pods.iter().map(String::as_str));
        self.devices.push(&holder.device);
        self.allocated += u64::from(holder.allocated);
        self.idle_since = self.idle_since.or(holder.idle_since);
        if let Some(activity) = activity {
            self.measured += u64::from(holder.allocated);
            self.busy += activity;
        }
        for (sum, more) in [
            (&mut self.memory_used_mib, holder.memory_used_mib),
            (&mut self.memory_mib, holder.memory_granted_mib),
        ] {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or_default().saturating_add(more));
            }
        }
    }

    /// Allocated and idle cards' worth; `None` if unknown.
    fn idle(&self) -> Option<f64> {
        (self.measured > 0).then(|| (self.measured as f64 / 1000.0 - self.busy).max(0.0))
    }
}

/// Claims with devices, most idle first.
pub fn claims(view: &FleetView) -> Markup {
    let mut claims: BTreeMap<(&str, &str), Row<'_>> = BTreeMap::new();
    for node in &view.nodes {
        for card in node.cards.values() {
            for holder in &card.holders {
                let row = claims.entry((&holder.namespace, &holder.claim)).or_default();
                row.add(holder, merge::activity(card, holder));
                row.nodes.insert(&node.name);
                row.pools.extend(card.pool.as_deref());
            }
        }
    }
    let mut rows: Vec<_> = claims.iter().collect();
    rows.sort_by(|(_, one), (_, other)| other.idle().unwrap_or(-1.0).total_cmp(&one.idle().unwrap_or(-1.0)));
    let names = |names: &BTreeSet<&str>| some_of(names.iter().copied(), names.len());
    let known = |value: Option<f64>| value.map_or("-".to_owned(), cards);
    html! {
        @if rows.is_empty() { p { "No claim holds a card." } } @else {
            div.wide { table data-sortable="" {
                thead { tr {
                    th scope="col" { "Claim" } th scope="col" { "Pods" } th scope="col" { "Node" } th scope="col" { "Devices" }
                    th scope="col" { "Pool" } th scope="col" { "Allocated" } th scope="col" { "Busy" } th scope="col" { "Idle" }
                    th scope="col" { "Memory" }
                } }
                tbody { @for ((namespace, claim), row) in rows.iter().take(MOST_ROWS) { tr {
                    th scope="row" { (namespace) "/" (claim) }
                    td { (names(&row.pods)) } td { (names(&row.nodes)) }
                    td { (some_of(row.devices.iter().copied(), row.devices.len())) }
                    td { (names(&row.pools)) } td { (cards(row.allocated as f64 / 1000.0)) }
                    td { (known((row.measured > 0).then_some(row.busy))) } td {
                        (known(row.idle()))
                        @if let Some(since) = row.idle_since { ", unused for " (age(view.at, since)) }
                    }
                    td {
                        (memory(row.memory_used_mib, row.memory_mib))
                        @if row.memory_mib.is_some_and(|part| row.memory_used_mib > Some(part)) { ", above its part" }
                    }
                } } }
            } }
            (more(rows.len()))
        }
    }
}

/// Teams, with a row for each amount.
pub fn teams(view: &FleetView) -> Markup {
    let rows = || view.teams.iter().flat_map(|team| team.amounts.iter().map(move |amount| (team, amount)));
    html! {
        div.wide { table data-sortable="" {
            caption { "GpuQuotas, in cards or bytes of memory" }
            thead { tr {
                th scope="col" { "Team" } th scope="col" { "Parent" } th scope="col" { "Amount" } th scope="col" { "Guaranteed" }
                th scope="col" { "Limit" } th scope="col" { "Used" } th scope="col" { "Borrowed" } th scope="col" { "Lent" }
                th scope="col" { "Waiting" }
            } }
            tbody { @for (team, amount) in rows().take(MOST_ROWS) { tr {
                th scope="row" { (team.name) }
                td { (team.parent.as_deref().unwrap_or("-")) } td { (amount.name) } td { (amount.guaranteed) }
                td { (amount.limit.as_deref().unwrap_or("-")) } td { (amount.used) } td { (amount.borrowed) } td { (amount.lent) }
                td { (team.waiting) }
            } } }
        } }
        (more(rows().count()))
    }
}

/// Card-hours by namespace, most idle first.
pub fn namespaces(view: &FleetView) -> Markup {
    let mut rows: Vec<&NamespaceDay> = view.day.namespaces.iter().collect();
    rows.sort_by(|one, other| other.idle_hours.total_cmp(&one.idle_hours));
    let has_prices = view.day.idle_cost.is_some();
    html! {
        @if rows.is_empty() { p { "Nobody has held a card in this time." } } @else {
            div.wide { table data-sortable="" {
                caption { "Card-hours by namespace, in " (span(view.day.hours)) }
                thead { tr {
                    th scope="col" { "Namespace" } th scope="col" { "Allocated" } th scope="col" { "Busy" } th scope="col" { "Idle" }
                    th scope="col" { "Busy of measured" }
                    @if has_prices { th scope="col" { "Idle, " (view.currency.as_deref().unwrap_or_default()) } }
                } }
                tbody { @for row in rows.iter().take(MOST_ROWS) { tr {
                    th scope="row" { (row.namespace) }
                    td { (cards(row.allocated_hours)) } td { (cards(row.busy_hours)) } td { (cards(row.idle_hours)) }
                    td { (percent(row.busy_hours, row.measured_hours)) }
                    @if has_prices { td { (format!("{:.2}", row.idle_cost.unwrap_or_default())) } }
                } } }
            } }
            (more(rows.len()))
        }
    }
}

/// Waiting pods, longest wait first.
pub fn waiting(view: &FleetView) -> Markup {
    let mut pods: Vec<&WaitingPod> = view.waiting.iter().collect();
    pods.sort_by_key(|pod| pod.since);
    html! {
        @if !view.leads { p.note { "This replica does not lead: it knows which pods wait, not why." } }
        @if pods.is_empty() { p { "No pod waits." } } @else {
            div.wide { table {
                thead { tr { th scope="col" { "Pod" } th scope="col" { "Since" } th scope="col" { "Pools" } th scope="col" { "Why" } } }
                tbody { @for pod in pods.iter().take(MOST_ROWS) { tr {
                    th scope="row" { (pod.namespace) "/" (pod.name) }
                    td { (age(view.at, pod.since)) } td { (pod.pools.join(", ")) } td { (pod.why) }
                } } }
            } }
            (more(pods.len()))
            p { "What would help: " code { "kubectl gpu explain pod/NAME -n NAMESPACE" } }
        }
    }
}

/// Cards by GpuPool; cards outside of pools are one entry.
pub fn pools(view: &FleetView) -> Markup {
    html! {
        div.wide { table data-sortable="" {
            thead { tr {
                th scope="col" { "Pool" } th scope="col" { "Allocation" } th scope="col" { "Cards" } th scope="col" { "Allocated" } th scope="col" { "Busy" }
            } }
            tbody { @for pool in &view.pools { tr {
                th scope="row" { (pool.name.as_deref().unwrap_or("(none)")) }
                td { (pool.allocations.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")) }
                td { (pool.cards) }
                td { (cards(pool.allocated)) } td { (cards(pool.busy)) }
            } } }
        } }
    }
}

/// Nodes, and problems of their cards.
pub fn nodes(view: &FleetView) -> Markup {
    html! {
        div.wide { table data-sortable="" {
            thead { tr {
                th scope="col" { "Node" } th scope="col" { "Cards" } th scope="col" { "Allocated" } th scope="col" { "Busy" } th scope="col" { "Memory" }
                th scope="col" { "Trouble" }
            } }
            tbody { @for node in view.nodes.iter().take(MOST_ROWS) { (node_row(node)) } }
        } }
        (more(view.nodes.len()))
    }
}

fn node_row(node: &NodeView) -> Markup {
    let allocated: f64 = node.cards.values().map(|card| f64::from(card.allocated) / 1000.0).sum();
    let busy: f64 = node.cards.values().map(merge::busy).sum();
    let usage = node.cards.values().filter_map(|card| card.usage.as_ref());
    let used: u64 = usage.filter_map(|usage| usage.memory_used_mib).sum();
    let total: u64 = node.cards.values().map(|card| card.memory_mib).sum();
    let trouble = node.cards.iter().filter(|(_, card)| !card.taints.is_empty());
    html! { tr {
        th scope="row" { (node.name) }
        td { (node.cards.len()) } td { (cards(allocated)) }
        @if node.no_usage.is_some() { td { "-" } td { (memory(None, Some(total))) } } @else {
            td { (cards(busy)) } td { (memory(Some(used), Some(total))) }
        }
        td {
            @for (address, card) in trouble { (address) ": " (card.taints.join(", ")) "; " }
            @if let Some(error) = &node.no_usage { (error) }
        }
    } }
}

/// The first of these names, and the number of others.
fn some_of<'v>(names: impl Iterator<Item = &'v str>, all: usize) -> String {
    let mut text = names.take(MOST_NAMES).collect::<Vec<_>>().join(", ");
    if all > MOST_NAMES {
        text += &format!(" and {} more", all - MOST_NAMES);
    }
    text
}

fn more(rows: usize) -> Markup {
    html! { @if rows > MOST_ROWS { p { "… and " (rows - MOST_ROWS) " more, in " a href="fleet.json" { "fleet.json" } } } }
}
