//! Every card as a picture of its allocation and use, drawn with numeric attributes only, so that no policy has to allow inline
//! styles.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};
use tessera_api::PciBusId;
use tessera_api::fleet_view::{CardView, FleetView, Holder};

use super::merge;
use super::words::percent;

/// Holders named below a card. More do not fit there; the table of claims lists all.
const NAMES: usize = 2;

/// Legend of the colours.
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

/// A card: partitions and shares side by side above, activity below.
fn cell(address: PciBusId, card: &CardView) -> Markup {
    let usage = card.usage.as_ref();
    let busy = merge::busy(card);
    let used = usage.and_then(|usage| usage.memory_used_mib).unwrap_or_default();
    let memory = (used as f64 / card.memory_mib.max(1) as f64).min(1.0);
    let mut shares = Vec::new();
    let mut start = 0;
    for holder in &card.holders {
        shares.push((start, holder.allocated.min(1000 - start)));
        start = (start + holder.allocated).min(1000);
    }
    html! {
        div.cell {
            // The title is also the accessible name.
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
            @for name in names(card) { p.who { (name) } }
        }
    }
}

/// Names of the card's holders, shown below the card.
fn names(card: &CardView) -> Vec<String> {
    let all: BTreeSet<String> = card.holders.iter().map(holder_name).collect();
    let more = all.len().saturating_sub(NAMES);
    let mut names: Vec<String> = all.into_iter().take(NAMES).collect();
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names
}

/// The card in words, for tooltips and for readers of the page's text.
fn words(address: PciBusId, card: &CardView) -> String {
    let mut text =
        format!("{address} {}: {} allocated", card.product_name, percent(f64::from(card.allocated), 1000.0));
    if let Some(usage) = &card.usage {
        if let Some(busy) = usage.sm_activity {
            let _ = write!(text, ", {} busy", percent(busy, 1.0));
        }
        if let Some(used) = usage.memory_used_mib {
            let _ = write!(text, ", {used} of {} MiB used", card.memory_mib);
        }
    }
    for holder in &card.holders {
        let _ = write!(text, "; {} holds {}", holder_name(holder), holder.device);
    }
    for taint in &card.taints {
        let _ = write!(text, "; {taint}");
    }
    text
}

fn holder_name(holder: &Holder) -> String {
    let Holder { namespace, claim, .. } = holder;
    match holder.pods.as_slice() {
        [] => format!("claim {namespace}/{claim}"),
        [pod] => format!("{namespace}/{pod}"),
        [pod, others @ ..] => format!("{namespace}/{pod} and {} more", others.len()),
    }
}

/// Thousandths as a percentage.
fn tenths(thousandths: u32) -> PreEscaped<String> {
    PreEscaped(format!("{}.{}", thousandths / 10, thousandths % 10))
}
