//! The page, as HTML: everything is in it without a script.

use std::collections::BTreeMap;

use maud::{DOCTYPE, Markup, html};
use tessera_api::fleet_view::{FleetView, NodeView, WaitingPod};
use tessera_api::gpu_pool::Allocation;

use super::history::{History, Point, Tally};
use super::map;
use super::prices::Prices;

/// Rows of a table; the page says how many more there are, and the JSON has them all.
const MOST_ROWS: usize = 200;

/// What the page is made from.
pub struct Contents<'p> {
    /// The fleet.
    pub view: &'p FleetView,
    /// The last day.
    pub history: &'p History,
    /// Prices.
    pub prices: &'p Prices,
    /// Why there are none although the administrator gave some.
    pub prices_error: Option<&'p str>,
    /// Name of the DRA driver.
    pub driver: &'p str,
}

/// The whole page.
pub fn page(contents: &Contents<'_>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "GPU fleet · " (contents.driver) }
                link rel="stylesheet" href="fleet.css";
                script src="fleet.js" defer {}
            }
            body {
                header { h1 { "GPU fleet" } p.driver { (contents.driver) } }
                main { (body(contents)) }
                footer {
                    p { "As of " time datetime=(rfc3339(contents.view.at)) { (rfc3339(contents.view.at)) }
                        ". The same as JSON: " a href="fleet.json" { "fleet.json" } "." }
                }
            }
        }
    }
}

fn body(contents: &Contents<'_>) -> Markup {
    let Contents { view, history, prices, .. } = *contents;
    let now = Point::of(view);
    let (sums, hours) = history.by_namespace();
    let mut day = Tally::default();
    sums.values().for_each(|sum| day.add(sum));
    let unknown = view.nodes.iter().filter(|node| node.no_usage.is_some()).count();
    html! {
        @if let Some(error) = contents.prices_error { p.note { "The price list " (error) "." } }
        @if unknown > 0 {
            p.note { (unknown) " of " (view.nodes.len()) " nodes do not say what their cards do; see the table of nodes." }
        }
        section.tiles aria-label="At a glance" {
            (tile("Cards", &now.cards.to_string(), &format!("on {} nodes", view.nodes.len())))
            (tile("Allocated", &percent(now.allocated, f64::from(now.cards)), &format!("{:.1} cards", now.allocated)))
            (tile("Busy", &percent(now.busy, f64::from(now.cards)), &format!("{:.1} cards' worth of multiprocessors", now.busy)))
            (tile("Allocated and idle", &format!("{:.1}", day.idle()), &format!("card-hours in {}", span(hours))))
            @if !prices.per_card_hour.is_empty() {
                (tile("That cost", &money(prices, day.lost), &format!("in {}", span(hours))))
            }
            (tile("Waiting", &view.waiting.len().to_string(), "pods"))
        }
        section {
            h2 { "Last day" }
            (map::trend(history))
        }
        section {
            h2 { "Map" }
            p.legend { (map::legend()) }
            (map::map(view))
        }
        section { h2 { "Teams" } (teams(&sums, prices, hours)) }
        section { h2 { "Waiting pods" } (waiting(view)) }
        section { h2 { "Pools" } (pools(view)) }
        section { h2 { "Nodes" } (nodes(view)) }
    }
}

fn tile(name: &str, number: &str, more: &str) -> Markup {
    html! { div.tile { h2 { (name) } p.number { (number) } p { (more) } } }
}

fn teams(sums: &BTreeMap<&str, Tally>, prices: &Prices, hours: f64) -> Markup {
    let mut rows: Vec<(&&str, &Tally)> = sums.iter().collect();
    rows.sort_by(|(_, one), (_, other)| other.idle().total_cmp(&one.idle()));
    let has_prices = !prices.per_card_hour.is_empty();
    html! {
        @if rows.is_empty() { p { "Nobody has held a card since this replica started." } } @else {
            div.wide { table data-sortable="" {
                caption { "Card-hours by namespace, in " (span(hours)) }
                thead { tr {
                    th scope="col" { "Namespace" } th scope="col" { "Allocated" } th scope="col" { "Busy" } th scope="col" { "Idle" }
                    th scope="col" { "Busy of measured" }
                    @if has_prices { th scope="col" { "Idle, " (prices.currency) } }
                } }
                tbody { @for (namespace, sum) in rows.iter().take(MOST_ROWS) { tr {
                    th scope="row" { (namespace) }
                    td { (format!("{:.2}", sum.allocated)) } td { (format!("{:.2}", sum.busy)) } td { (format!("{:.2}", sum.idle())) }
                    td { (percent(sum.busy, sum.measured)) }
                    @if has_prices { td { (format!("{:.2}", sum.lost)) } }
                } } }
            } }
            (more(rows.len()))
        }
    }
}

fn waiting(view: &FleetView) -> Markup {
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

/// Cards, by what decides on them.
#[derive(Default)]
struct Pool {
    cards: u32,
    allocated: f64,
    busy: f64,
    allocations: Vec<Allocation>,
}

fn pools(view: &FleetView) -> Markup {
    let mut pools: BTreeMap<Option<&str>, Pool> = BTreeMap::new();
    for card in view.nodes.iter().flat_map(|node| node.cards.values()) {
        let pool = pools.entry(card.pool.as_deref()).or_default();
        pool.cards += 1;
        pool.allocated += f64::from(card.allocated) / 1000.0;
        pool.busy += card.usage.as_ref().and_then(|usage| usage.sm_activity).unwrap_or_default();
        if !pool.allocations.contains(&card.allocation) {
            pool.allocations.push(card.allocation);
        }
    }
    html! {
        div.wide { table data-sortable="" {
            thead { tr {
                th scope="col" { "Pool" } th scope="col" { "Allocation" } th scope="col" { "Cards" } th scope="col" { "Allocated" } th scope="col" { "Busy" }
            } }
            tbody { @for (name, pool) in &pools { tr {
                th scope="row" { (name.unwrap_or("(none)")) }
                td { @for allocation in &pool.allocations { (format!("{allocation:?} ")) } }
                td { (pool.cards) }
                td { (percent(pool.allocated, f64::from(pool.cards))) } td { (percent(pool.busy, f64::from(pool.cards))) }
            } } }
        } }
    }
}

fn nodes(view: &FleetView) -> Markup {
    html! {
        div.wide { table data-sortable="" {
            thead { tr {
                th scope="col" { "Node" } th scope="col" { "Cards" } th scope="col" { "Allocated" } th scope="col" { "Busy" } th scope="col" { "Memory used" }
                th scope="col" { "Trouble" }
            } }
            tbody { @for node in view.nodes.iter().take(MOST_ROWS) { (node_row(node)) } }
        } }
        (more(view.nodes.len()))
    }
}

fn node_row(node: &NodeView) -> Markup {
    let cards = node.cards.len() as f64;
    let allocated: f64 = node.cards.values().map(|card| f64::from(card.allocated) / 1000.0).sum();
    let usage = || node.cards.values().filter_map(|card| card.usage.as_ref());
    let busy: f64 = usage().filter_map(|usage| usage.sm_activity).sum();
    let used: u64 = usage().filter_map(|usage| usage.memory_used_mib).sum();
    let total: u64 = node.cards.values().map(|card| card.memory_mib).sum();
    let trouble = node.cards.iter().filter(|(_, card)| !card.taints.is_empty());
    html! { tr {
        th scope="row" { (node.name) }
        td { (node.cards.len()) } td { (percent(allocated, cards)) }
        @if node.no_usage.is_some() { td { "–" } td { "–" } } @else {
            td { (percent(busy, cards)) } td { (percent(used as f64, total as f64)) }
        }
        td {
            @for (address, card) in trouble { (address) ": " (card.taints.join(", ")) "; " }
            @if let Some(error) = &node.no_usage { (error) }
        }
    } }
}

fn more(rows: usize) -> Markup {
    html! { @if rows > MOST_ROWS { p { "… and " (rows - MOST_ROWS) " more, in " a href="fleet.json" { "fleet.json" } } } }
}

fn percent(part: f64, all: f64) -> String {
    if all > 0.0 { format!("{:.0} %", 100.0 * part / all) } else { "–".to_owned() }
}

fn money(prices: &Prices, amount: f64) -> String {
    format!("{} {amount:.2}", prices.currency)
}

/// `24 h`, `35 min`.
fn span(hours: f64) -> String {
    if hours < 2.0 { format!("{:.0} min", hours * 60.0) } else { format!("{hours:.0} h") }
}

fn age(now: u64, since: u64) -> String {
    match now.saturating_sub(since) {
        _ if since == 0 => "–".to_owned(),
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

fn rfc3339(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|at| k8s_openapi::jiff::Timestamp::from_second(at).ok());
    time.map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tessera_api::fleet_view::{CardView, Holder};

    use super::*;

    fn text(view: &FleetView) -> String {
        let (history, prices) = (History::default(), Prices::default());
        let contents = Contents {
            view,
            history: &history,
            prices: &prices,
            prices_error: None,
            driver: "gpu.tessera.dev",
        };
        page(&contents).into_string()
    }

    #[test]
    fn hostile_names_stay_text() {
        let hostile = "\"><script>alert(1)</script>".to_owned();
        let holder = Holder {
            namespace: hostile.clone(),
            claim: hostile.clone(),
            device: hostile.clone(),
            ..Holder::default()
        };
        let card = CardView {
            pool: Some(hostile.clone()),
            product_name: hostile.clone(),
            taints: vec![hostile.clone()],
            holders: vec![holder],
            ..CardView::default()
        };
        let cards = [(tessera_api::PciBusId::new(0, 1, 0, 0).unwrap(), card)].into();
        let node = NodeView { name: hostile.clone(), cards, no_usage: Some(hostile.clone()) };
        let pod = WaitingPod {
            namespace: hostile.clone(),
            name: hostile.clone(),
            since: 0,
            why: hostile,
            ..WaitingPod::default()
        };
        let page = text(&FleetView { nodes: vec![node], waiting: vec![pod], ..FleetView::default() });
        assert!(page.matches("&lt;script&gt;alert(1)").count() >= 8, "{page}");
        assert_eq!(page.matches("<script").count(), 1, "only the page's own: {page}");
        assert!(!page.contains("style="), "the policy of the page allows no styles in it");
    }

    #[test]
    fn long_tables_end() {
        let pod = |number: usize| WaitingPod { name: format!("pod-{number}"), ..WaitingPod::default() };
        let view = FleetView { waiting: (0..100_000).map(pod).collect(), ..FleetView::default() };
        let page = text(&view);
        assert!(page.len() < 100_000 && page.contains("and 99800 more"), "{} bytes", page.len());
    }

    #[test]
    fn a_hundred_thousand_claims_have_a_page() {
        let holder = |share: usize| Holder {
            namespace: "team".to_owned(),
            claim: format!("claim-{share}"),
            pods: vec![format!("pod-{share}")],
            allocated: 80,
            ..Holder::default()
        };
        let card = |bus: u8| {
            let card =
                CardView { holders: (0..13).map(holder).collect(), allocated: 1000, ..CardView::default() };
            (tessera_api::PciBusId::new(0, bus, 0, 0).unwrap(), card)
        };
        let node = |number: usize| NodeView {
            name: format!("node-{number}"),
            cards: (0..8).map(card).collect(),
            ..NodeView::default()
        };
        let page = text(&FleetView { nodes: (0..1000).map(node).collect(), ..FleetView::default() });
        assert_eq!(page.matches("; team/pod-").count(), 104_000, "each is told");
        // Linear: some 150 bytes for each, as text and as a part of the picture.
        assert!(page.len() < 20_000_000, "{} bytes", page.len());
    }

    #[test]
    fn an_empty_fleet_has_a_page() {
        let page = text(&FleetView::default());
        assert!(page.contains("No pod waits.") && page.contains("Nobody has held a card"), "{page}");
    }
}
