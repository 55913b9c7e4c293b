//! The page as HTML: complete without scripts, with the same content as the JSON.

mod tables;

use maud::{DOCTYPE, Markup, html};
use tessera_api::fleet_view::{FleetView, cards};

use super::words::{counted, money, percent, rfc3339, span};
use super::{chart, history, map};

/// The whole page, about this driver's cards.
pub fn page(view: &FleetView, driver: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "GPU fleet · " (driver) }
                link rel="stylesheet" href="fleet.css";
                script src="fleet.js" defer {}
            }
            body {
                header { h1 { "GPU fleet" } p.driver { (driver) } }
                main { (body(view)) }
                footer {
                    p { "As of " time datetime=(rfc3339(view.at)) { (rfc3339(view.at)) }
                        ". The same as JSON: " a href="fleet.json" { "fleet.json" } "." }
                }
            }
        }
    }
}

fn body(view: &FleetView) -> Markup {
    let now = history::now(view);
    let all = f64::from(now.cards);
    let unknown = view.nodes.iter().filter(|node| node.no_usage.is_some()).count();
    let time = span(view.day.hours);
    html! {
        @if let Some(error) = &view.prices_error { p.note { "The price list " (error) "." } }
        @if unknown > 0 {
            p.note { (unknown) " of " (counted(view.nodes.len(), "node")) " tell nothing of what their cards do; see the table of nodes." }
        }
        section.tiles aria-label="At a glance" {
            (tile("Cards", &now.cards.to_string(), &format!("on {}", counted(view.nodes.len(), "node"))))
            (tile("Allocated", &percent(now.allocated, all), &format!("{} cards", cards(now.allocated))))
            (tile("Busy", &percent(now.busy, all), &format!("{} cards' worth of multiprocessors", cards(now.busy))))
            (tile("Allocated and idle", &cards(view.day.idle_hours), &format!("card-hours in {time}")))
            @if let Some(cost) = view.day.idle_cost {
                (tile("That cost", &money(view.currency.as_deref().unwrap_or_default(), cost), &format!("in {time}")))
            }
            (tile("Waiting", &view.waiting.len().to_string(), if view.waiting.len() == 1 { "pod" } else { "pods" }))
        }
        section { h2 { "Last day" } (chart::chart(&view.day.points, &now)) }
        section {
            h2 { "Map" }
            p.legend { (map::legend()) }
            (map::map(view))
        }
        section { h2 { "Who holds what" } (tables::claims(view)) }
        @if !view.teams.is_empty() { section { h2 { "Teams" } (tables::teams(view)) } }
        section { h2 { "Namespaces" } (tables::namespaces(view)) }
        section { h2 { "Waiting pods" } (tables::waiting(view)) }
        section { h2 { "Pools" } (tables::pools(view)) }
        section { h2 { "Nodes" } (tables::nodes(view)) }
    }
}

fn tile(name: &str, number: &str, more: &str) -> Markup {
    html! { div.tile { h2 { (name) } p.number { (number) } p { (more) } } }
}

#[cfg(test)]
mod tests {
    use tessera_api::fleet_view::{CardView, Holder, NodeView, TeamView, WaitingPod};
    use tessera_api::gpu_quota::AmountStatus;
    use tessera_api::usage::CardUsage;

    use super::*;

    fn text(view: &FleetView) -> String {
        page(view, "gpu.tessera.dev").into_string()
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
    fn teams_have_a_table_where_there_are_any() {
        let amount = AmountStatus {
            name: "cards".to_owned(),
            guaranteed: "12.00".to_owned(),
            used: "8.50".to_owned(),
            lent: "3.50".to_owned(),
            ..AmountStatus::default()
        };
        let team = TeamView { name: "vision".to_owned(), amounts: vec![amount], ..TeamView::default() };
        let page = text(&FleetView { teams: vec![team], ..FleetView::default() });
        let cells = "vision</th><td>-</td><td>cards</td><td>12.00</td><td>-</td><td>8.50</td><td></td><td>3.50</td><td>0</td>";
        assert!(page.contains(cells), "{page}");
        assert!(!text(&FleetView::default()).contains("Teams"));
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
        // Linear: some 150 bytes per card, as text and as part of the picture.
        assert!(page.len() < 20_000_000, "{} bytes", page.len());
    }

    #[test]
    fn an_empty_fleet_has_a_page() {
        let page = text(&FleetView::default());
        assert!(page.contains("No pod waits.") && page.contains("Nobody has held a card"), "{page}");
    }

    /// An idle claim on two cards, a busy one, and one with unknown activity.
    #[test]
    fn who_holds_what_is_in_a_table_and_in_the_map() {
        let holder = |claim: &str, device: &str| Holder {
            device: device.to_owned(),
            namespace: "team".to_owned(),
            claim: format!("{claim}-gpus"),
            pods: vec![claim.to_owned()],
            allocated: 1000,
            memory_granted_mib: Some(80 * 1024),
            memory_used_mib: (claim == "busy").then_some(90 * 1024),
            idle_since: (claim == "idle").then_some(7_200),
            ..Holder::default()
        };
        let card = |holder: Holder, busy: Option<f64>| CardView {
            pool: Some("training".to_owned()),
            allocated: 1000,
            holders: vec![holder],
            usage: busy.map(|busy| CardUsage { sm_activity: Some(busy), ..CardUsage::default() }),
            ..CardView::default()
        };
        let address = |bus: u8| tessera_api::PciBusId::new(0, bus, 0, 0).unwrap();
        let cards = [
            (address(1), card(holder("busy", "gpu-01-00"), Some(0.98))),
            (address(2), card(holder("idle", "gpu-02-00"), Some(0.25))),
            (address(3), card(holder("idle", "gpu-03-00"), Some(0.25))),
            (address(4), card(holder("silent", "gpu-04-00"), None)),
        ];
        let node = NodeView { name: "node-a".to_owned(), cards: cards.into(), ..NodeView::default() };
        let page = text(&FleetView { at: 18_000, nodes: vec![node], ..FleetView::default() });
        let table = page.split("Who holds what").nth(1).unwrap().split("</section>").next().unwrap();
        let rows: Vec<&str> = table.split("<tr>").skip(2).collect();
        let cells = |row: &str| -> Vec<String> {
            let cells = row.split("<td>").skip(1).map(|cell| cell.split("</td>").next().unwrap().to_owned());
            cells.collect()
        };
        assert!(rows[0].contains("team/idle-gpus") && rows.len() == 3, "most idle first: {table}");
        let found = cells(rows[0]);
        let idle = "1.50, unused for 3 h";
        let wanted =
            ["idle", "node-a", "gpu-02-00, gpu-03-00", "training", "2.00", "0.50", idle, "- of 160.0 GiB"];
        assert_eq!(found, wanted);
        assert!(rows[1].contains("busy-gpus") && cells(rows[1])[6] == "0.02", "{rows:?}");
        assert_eq!(cells(rows[1])[7], "90.0 of 80.0 GiB, above its part");
        assert_eq!(cells(rows[2])[5..7], ["-", "-"], "nobody tells: {rows:?}");
        assert!(page.contains("<p class=\"who\">team/idle</p>"), "{page}");
        // The same digits as in `kubectl gpu top`.
        assert!(page.contains("1.48 cards' worth") && page.contains("4.00 cards"), "{page}");
    }
}
