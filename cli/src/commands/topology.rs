//! `kubectl gpu topology`: connections of a node's cards, and their holders.

use std::collections::{BTreeMap, BTreeSet};

use crate::api_server::Wanted;
use crate::arguments::TopologyArguments;
use crate::devices::of_fault;
use crate::hints;
use crate::output::{self, CommandError, Paint, Verdict, printable, warn};
use crate::reports;
use crate::source::Source;
use crate::topology::{Card, GROUPS, Held, NodeSummary, Topology, of_nodes};

/// The legend of `nvidia-smi topo -m`.
const LEGEND: [(&str, &str); 7] = [
    ("X", "Self"),
    ("SYS", "Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)"),
    (
        "NODE",
        "Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
    ),
    ("PHB", "Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)"),
    ("PXB", "Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)"),
    ("PIX", "Connection traversing at most a single PCIe bridge"),
    ("NV#", "Connection traversing a bonded set of # NVLinks"),
];

/// Runs the command.
///
/// # Errors
/// The objects could not be read, or there is no such node.
pub fn run(arguments: &TopologyArguments) -> Result<Verdict, CommandError> {
    let source = Source::load(&arguments.source, Wanted::Holders { node: arguments.node.clone() })?;
    let (reports, warnings) = reports::reports(source.objects.slices.values());
    warn(&warnings);
    let Some(name) = &arguments.node else {
        let nodes = of_nodes(&source.objects, &reports, None);
        let summaries: Vec<NodeSummary> = nodes.iter().map(NodeSummary::of).collect();
        match arguments.output {
            Some(format) => output::structured(format, &summaries)?,
            None if summaries.is_empty() => output::print("no node has published cards\n")?,
            None => output::print(&list(&summaries))?,
        }
        return Ok(if summaries.is_empty() { Verdict::No } else { Verdict::Yes });
    };
    let Some(topology) = of_nodes(&source.objects, &reports, Some(name)).pop() else {
        let known: BTreeSet<String> =
            of_nodes(&source.objects, &reports, None).into_iter().map(|topology| topology.node).collect();
        let near = hints::nearest(name, &known).map(|near| format!(": did you mean {near}?"));
        let near = near.unwrap_or_else(|| "; `kubectl gpu topology` lists the nodes with cards".to_owned());
        return Err(CommandError::Asked(format!("no cards are published for node {name}{near}")));
    };
    match arguments.output {
        Some(format) => output::structured(format, &topology)?,
        None => output::print(&text(&topology, Paint::standard_output()))?,
    }
    Ok(Verdict::Yes)
}

fn list(nodes: &[NodeSummary]) -> String {
    let joined = |names: &BTreeSet<String>| {
        if names.is_empty() { "-".to_owned() } else { names.iter().cloned().collect::<Vec<_>>().join(", ") }
    };
    let rows = nodes.iter().map(|node| {
        vec![
            node.node.clone(),
            node.cards.to_string(),
            node.used.to_string(),
            node.out.to_string(),
            joined(&node.products),
            joined(&node.pools),
            if node.reported { "reported" } else { "not reported" }.to_owned(),
        ]
    });
    output::table(&["NODE", "CARDS", "IN USE", "OUT", "PRODUCT", "GPU POOLS", "LINKS"], rows)
}

fn text(topology: &Topology, paint: Paint) -> String {
    let products: BTreeSet<&str> =
        topology.cards.iter().filter_map(|card| card.product_name.as_deref()).collect();
    let products = products.into_iter().collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "{}: {}{}{}\n\n",
        paint.bold(&printable(&topology.node)),
        output::counted(topology.cards.len(), "card"),
        if products.is_empty() { "" } else { ", " },
        printable(&products)
    );
    if topology.reported {
        text += &matrix(topology);
    } else {
        text += &cards(topology);
        text += &format!(
            "\n{}\n",
            paint.hint(
                "connections between the cards are unknown: no slice of the node has a readable annotation \
                 gpu.tessera.dev/node-report, which kubelet plugins of this version write"
            )
        );
    }
    text += &groups(topology);
    text += &holders(topology);
    text
}

/// Rows and columns of all cards, followed by the columns of `nvidia-smi topo -m`.
fn matrix(topology: &Topology) -> String {
    let mut links: BTreeMap<(&str, &str), String> = BTreeMap::new();
    for link in &topology.links {
        links.insert((&link.cards.0, &link.cards.1), link.text());
        links.insert((&link.cards.1, &link.cards.0), link.text());
    }
    let titles: Vec<String> = topology.cards.iter().map(Card::title).collect();
    let mut header = vec!["", "ADDRESS"];
    header.extend(titles.iter().map(String::as_str));
    header.push("NUMA");
    let rows = topology.cards.iter().map(|card| {
        let mut row = vec![card.title(), card.address.clone()];
        row.extend(topology.cards.iter().map(|other| {
            let is_self = other.address == card.address;
            let link = links.get(&(card.address.as_str(), other.address.as_str()));
            if is_self { "X".to_owned() } else { link.cloned().unwrap_or_default() }
        }));
        row.push(card.numa_node.map_or("N/A".to_owned(), |node| node.to_string()));
        row
    });
    let mut text = output::table(&header, rows);
    text += "\nLegend\n";
    for (name, meaning) in LEGEND {
        text += &format!("  {name:<4} = {meaning}\n");
    }
    text
}

fn cards(topology: &Topology) -> String {
    let rows = topology.cards.iter().map(|card| {
        let numa = card.numa_node.map_or("N/A".to_owned(), |node| node.to_string());
        vec![card.title(), card.address.clone(), numa]
    });
    output::table(&["", "ADDRESS", "NUMA"], rows)
}

/// Cards with equal values of each attribute.
fn groups(topology: &Topology) -> String {
    let mut rows = Vec::new();
    for name in GROUPS {
        let mut by_value: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for card in &topology.cards {
            if let Some(value) = card.groups.get(name) {
                by_value.entry(value).or_default().push(card.title());
            }
        }
        for (value, cards) in by_value {
            rows.push(vec![name.to_owned(), value.to_owned(), cards.join(" ")]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", output::table(&["GROUP", "VALUE", "CARDS"], rows))
}

fn holders(topology: &Topology) -> String {
    let mut rows = Vec::new();
    let mut waits = String::new();
    for card in &topology.cards {
        let pool = match (&card.pool, card.allocation) {
            (Some(pool), Some(allocation)) => format!("{pool} ({allocation})"),
            (Some(pool), None) => pool.clone(),
            (None, _) => "-".to_owned(),
        };
        let mut first = vec![card.title(), pool];
        for held in &card.held {
            first.extend([held.what.clone(), consumes(held), who(held)]);
            rows.push(std::mem::replace(&mut first, vec![String::new(), String::new()]));
        }
        if card.held.is_empty() {
            let is = match &card.fault {
                Some(_) => "out",
                None if !card.is_published => "nothing offered",
                None => "free",
            };
            first.extend([is.to_owned(), String::new(), String::new()]);
            rows.push(first);
        }
        if let Some(fault) = &card.fault {
            waits += &format!("\n{}: {}\n", card.title(), printable(&of_fault(fault)));
        }
        if !card.waits_for.is_empty() {
            let devices = printable(&card.waits_for.join(", "));
            waits +=
                &format!("\n{}: no longer offered, kept until their claims end: {devices}\n", card.title());
        }
    }
    for (pool, trouble) in &topology.troubles {
        waits += &format!("\nGpuPool {pool}: {}\n", printable(trouble));
    }
    format!("\n{}{waits}", output::table(&["CARD", "GPU POOL", "HELD", "CONSUMES", "BY"], rows))
}

fn consumes(held: &Held) -> String {
    held.consumes.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
}

fn who(held: &Held) -> String {
    if held.by.is_empty() {
        format!("{} (used by no pod)", held.claim)
    } else {
        format!("{} ({})", held.claim, held.by.join(", "))
    }
}
