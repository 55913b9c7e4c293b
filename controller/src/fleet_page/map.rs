//! Pictures: every card with what is allocated beside what is used, and the last day. Of numbers in attributes only, so that no
//! policy has to allow styles in the page.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};
use tessera_api::PciBusId;
use tessera_api::fleet_view::{CardView, FleetView};

use super::history::{History, Point};

/// Points of the curve of a day: more would not be seen.
const POINTS: usize = 288;

/// What the colours mean.
pub fn legend() -> Markup {
    html! {
        span.key { svg.swatch viewBox="0 0 10 10" aria-hidden="true" { rect.allocated width="10" height="10" {} } " allocated" }
        span.key { svg.swatch viewBox="0 0 10 10" aria-hidden="true" { rect.busy width="10" height="10" {} } " multiprocessors busy" }
        span.key { svg.swatch viewBox="0 0 10 10" aria-hidden="true" { rect.memory width="10" height="10" {} } " memory used" }
        span.key { svg.swatch viewBox="0 0 10 10" aria-hidden="true" { rect.sick x="1" y="1" width="8" height="8" {} } " gets no work" }
    }
}

/// Every node with its cards.
pub fn map(view: &FleetView) -> Markup {
    html! {
        ul.nodes {
            @for node in &view.nodes {
                li { h3 { (node.name) } div.cards { @for (address, card) in &node.cards { (cell(*address, card)) } } }
            }
        }
    }
}

/// A card: its partitions and shares side by side above, what it does below.
fn cell(address: PciBusId, card: &CardView) -> Markup {
    let usage = card.usage.as_ref();
    let busy = usage.and_then(|usage| usage.sm_activity).unwrap_or_default().clamp(0.0, 1.0);
    let used = usage.and_then(|usage| usage.memory_used_mib).unwrap_or_default();
    let memory = (used as f64 / card.memory_mib.max(1) as f64).min(1.0);
    let mut shares = Vec::new();
    let mut start = 0;
    for holder in &card.holders {
        shares.push((start, holder.allocated.min(1000 - start)));
        start = (start + holder.allocated).min(1000);
    }
    html! {
        // Its title is its accessible name, too.
        svg.card viewBox="0 0 100 30" role="img" {
            title { (words(address, card)) }
            rect.ground width="100" height="30" {}
            @for (start, width) in shares.into_iter().filter(|(_, width)| *width > 0) {
                rect.allocated x=(tenths(start)) width=(tenths(width.saturating_sub(8).max(1))) height="14" {}
            }
            rect.busy y="16" width=(tenths((busy * 1000.0) as u32)) height="6" {}
            rect.memory y="24" width=(tenths((memory * 1000.0) as u32)) height="6" {}
            @if !card.taints.is_empty() { rect.sick x="1.5" y="1.5" width="97" height="27" {} }
        }
    }
}

/// The card in words, for a pointer that rests on it and for readers of the page's text.
fn words(address: PciBusId, card: &CardView) -> String {
    let mut text = format!("{address} {}: {} % allocated", card.product_name, card.allocated / 10);
    if let Some(usage) = &card.usage {
        if let Some(busy) = usage.sm_activity {
            let _ = write!(text, ", {:.0} % busy", busy * 100.0);
        }
        if let Some(used) = usage.memory_used_mib {
            let _ = write!(text, ", {used} of {} MiB used", card.memory_mib);
        }
    }
    for holder in &card.holders {
        let _ = write!(
            text,
            "; {} holds {}",
            holder_name(&holder.namespace, &holder.pods, &holder.claim),
            holder.device
        );
    }
    for taint in &card.taints {
        let _ = write!(text, "; {taint}");
    }
    text
}

fn holder_name(namespace: &str, pods: &[String], claim: &str) -> String {
    match pods {
        [] => format!("claim {namespace}/{claim}"),
        [pod] => format!("{namespace}/{pod}"),
        [pod, others @ ..] => format!("{namespace}/{pod} and {} more", others.len()),
    }
}

/// Allocated and busy cards over the last day.
pub fn trend(history: &History) -> Markup {
    let points: Vec<&Point> = history.points().collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return html! { p { "No look yet." } };
    };
    if last.at == first.at {
        return html! { p { "The curve begins with the second minute." } };
    }
    let most = points.iter().map(|point| point.cards).max().unwrap_or_default().max(1);
    let step = points.len().div_ceil(POINTS);
    let seconds = (last.at - first.at) as f64;
    let curve = |value: fn(&Point) -> f64| {
        let mut path = String::new();
        for point in points.iter().step_by(step) {
            let x = 1000.0 * (point.at - first.at) as f64 / seconds;
            let y = 200.0 * (1.0 - value(point) / f64::from(most));
            let _ = write!(path, "{}{x:.0} {y:.1}", if path.is_empty() { "M" } else { "L" });
        }
        path
    };
    let area = |path: String| format!("{path}V200H0Z");
    let percent = |value: f64| 100.0 * value / f64::from(most);
    let text = format!(
        "Over the last {:.0} min: {:.0} % of {most} cards allocated and {:.0} % busy now",
        seconds / 60.0,
        percent(last.allocated),
        percent(last.busy)
    );
    html! {
        svg.trend viewBox="0 0 1000 200" preserveAspectRatio="none" role="img" {
            title { (text) }
            path.allocated d=(area(curve(|point| point.allocated))) {}
            path.busy d=(area(curve(|point| point.busy))) {}
        }
        p.legend { (text) "; the top is all cards." }
    }
}

/// Thousandths as a number of a hundred.
fn tenths(thousandths: u32) -> PreEscaped<String> {
    PreEscaped(format!("{}.{}", thousandths / 10, thousandths % 10))
}
