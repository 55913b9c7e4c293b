//! A map of cards and their holders.

use std::collections::BTreeMap;

use tessera_simulate::fleet::{CardView, Fleet, Holdings, Workload};

use crate::output::{self, printable};

/// Adjacent cards of a node held entirely by the same pods.
struct Row<'v> {
    node: &'v str,
    first: usize,
    last: usize,
    taken: f64,
    held: String,
}

/// The map as a table. Adjacent cards share a row if the same pod holds them whole, or if all are free; entirely free nodes are
/// only counted.
pub fn text(fleet: &Fleet, workload: &Workload, holdings: &Holdings) -> String {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for card in holdings.cards(fleet) {
        let held = held(&card, workload);
        let taken = card.taken();
        let is_whole = card.holders.iter().all(|holder| holder.part == "whole");
        match rows.last_mut() {
            Some(last) if is_whole && last.node == card.node && last.held == held => last.last = card.index,
            _ => rows.push(Row { node: card.node, first: card.index, last: card.index, taken, held }),
        }
    }
    let counts: BTreeMap<&str, usize> =
        fleet.nodes().iter().map(|node| (node.name.as_str(), node.cards().len())).collect();
    let is_empty = |row: &&Row<'_>| row.held.is_empty() && row.last - row.first + 1 == counts[row.node];
    let (empty, used): (Vec<&Row<'_>>, Vec<&Row<'_>>) = rows.iter().partition(is_empty);
    let row = |row: &Row<'_>| {
        let Row { node, first, last, taken, held } = row;
        let cards = if first == last { first.to_string() } else { format!("{first}-{last}") };
        let held = if held.is_empty() { "-" } else { held };
        vec![(*node).to_owned(), cards, format!("{:.0} %", taken * 100.0), held.to_owned()]
    };
    let mut text = String::new();
    if !used.is_empty() {
        text += &output::table(&["NODE", "CARDS", "ALLOCATED", "HELD BY"], used.into_iter().map(row));
    }
    match empty.as_slice() {
        [] => {}
        [one] => text += &format!("{} is empty, with {}\n", one.node, output::counted(one.last + 1, "card")),
        all => {
            let cards: usize = all.iter().map(|row| row.last + 1).sum();
            text += &format!("{} nodes are empty, with {}\n", all.len(), output::counted(cards, "card"));
        }
    }
    text
}

/// `web-0, web-3..5: 15 %; train-1: whole`.
fn held(card: &CardView<'_>, workload: &Workload) -> String {
    let mut by_part: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for holder in card.holders {
        by_part.entry(&holder.part).or_default().push(workload.name(holder.pod));
    }
    let parts = by_part.into_iter().map(|(part, names)| format!("{}: {part}", numbered(&names)));
    parts.collect::<Vec<_>>().join("; ")
}

/// Names with consecutive numbers combined; names without numbers come first.
fn numbered(names: &[&str]) -> String {
    let split = |name: &str| {
        let (name, number) = name.rsplit_once('-')?;
        // `007` is no number, but the end of a generated name.
        let digits = number.parse().ok().filter(|digits: &usize| digits.to_string() == number)?;
        Some((name.to_owned(), digits))
    };
    let mut parts: Vec<String> =
        names.iter().filter(|name| split(name).is_none()).map(|name| printable(name)).collect();
    parts.sort_unstable();
    let mut split: Vec<(String, usize)> = names.iter().filter_map(|name| split(name)).collect();
    split.sort_unstable();
    let mut ranges: Vec<(String, usize, usize)> = Vec::new();
    for (name, number) in split {
        match ranges.last_mut() {
            Some((last, _, end)) if *last == name && *end + 1 == number => *end = number,
            _ => ranges.push((name, number, number)),
        }
    }
    let range = |(name, first, last): (String, usize, usize)| match last - first {
        0 => format!("{name}-{first}"),
        _ => format!("{name}-{first}..{last}"),
    };
    parts.extend(ranges.into_iter().map(range));
    parts.join(", ")
}
