//! `kubectl gpu pools`: the GpuPools, or one of them with its nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tessera_api::gpu_pool::GpuPool;
use tessera_api::label_selector::LabelSelector;

use crate::api_server::Wanted;
use crate::arguments::{ListFormat, PoolsArguments};
use crate::hints;
use crate::labels::labels;
use crate::output::{self, CommandError, Paint, Verdict, or_dash, printable, warn};
use crate::pools::{NodeOfPool, PoolView, nodes_of_pool};
use crate::reports;
use crate::source::Source;
use crate::status::{self, Known};

/// Runs the command.
///
/// # Errors
/// The pools could not be read, or the kind or the named pool does not exist.
pub fn run(arguments: &PoolsArguments) -> Result<Verdict, CommandError> {
    let wanted = Wanted::Pools { devices: arguments.name.is_some() };
    let source = Source::load(&arguments.source, wanted)?;
    let Some(pools) = &source.pools else {
        return Err(CommandError::Asked(
            "the cluster has no GpuPools: the CustomResourceDefinition gpupools.gpu.tessera.dev is not installed; \
             this version's chart contains it (docs/installing.md)"
                .to_owned(),
        ));
    };
    match &arguments.name {
        None => list(arguments.output, pools.values()),
        Some(name) => one(arguments.output, name, &source, pools.values()),
    }
}

fn verdict<'v>(mut views: impl Iterator<Item = &'v PoolView>) -> Verdict {
    if views.all(PoolView::is_ready) { Verdict::Yes } else { Verdict::No }
}

fn list<'p>(
    output: Option<ListFormat>,
    pools: impl Iterator<Item = &'p GpuPool>,
) -> Result<Verdict, CommandError> {
    let views: Vec<PoolView> = pools.map(PoolView::of).collect();
    if let Some(format) = output.and_then(ListFormat::structured) {
        output::structured(format, &views)?;
    } else if views.is_empty() {
        output::print("there are no GpuPools: kube-scheduler allocates all cards, whole or as partitions\n")?;
    } else {
        let is_wide = output == Some(ListFormat::Wide);
        let notes = status::notes(views.iter().map(|view| (view.name.as_str(), view.known)));
        output::print(&(table(&views, is_wide) + &notes))?;
    }
    Ok(verdict(views.iter()))
}

fn table(views: &[PoolView], is_wide: bool) -> String {
    let mut header = vec![
        "NAME",
        "ALLOCATION",
        "STRATEGY",
        "PRIORITY",
        "NODES",
        "CARDS",
        "ALLOCATED",
        "UNALLOCATABLE",
        "WAITING",
        "STATE",
    ];
    if is_wide {
        header.extend(["OFFERED", "TOPOLOGY", "MESSAGE"]);
    }
    let rows = views.iter().map(|view| {
        let mut row = vec![
            view.name.clone(),
            view.allocation.to_string(),
            view.placement.strategy.to_string(),
            view.priority.to_string(),
            or_dash(view.nodes),
            or_dash(view.cards),
            or_dash(view.allocated.as_ref()),
            or_dash(view.unallocatable.as_ref()),
            or_dash(view.waiting_pods),
            view.state(),
        ];
        if is_wide {
            row.extend([
                or_dash(view.offered),
                view.placement.topology.to_string(),
                view.ready().map(|condition| condition.message.clone()).unwrap_or_default(),
            ]);
        }
        row
    });
    output::table(&header, rows)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Described<'a> {
    #[serde(flatten)]
    view: PoolView,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_selector: Option<&'a LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cards_expression: Option<&'a str>,
    by_node: BTreeMap<String, NodeOfPool>,
}

fn one<'p>(
    output: Option<ListFormat>,
    name: &str,
    source: &Source,
    mut pools: impl Iterator<Item = &'p GpuPool> + Clone,
) -> Result<Verdict, CommandError> {
    let known: BTreeSet<String> = pools.clone().filter_map(|pool| pool.metadata.name.clone()).collect();
    let Some(pool) = pools.find(|pool| pool.metadata.name.as_deref() == Some(name)) else {
        let near = hints::nearest(name, &known).map(|near| format!(": did you mean {near}?"));
        return Err(CommandError::Asked(format!(
            "there is no GpuPool {name}{}",
            near.unwrap_or_else(|| "; `kubectl gpu pools` lists them".to_owned())
        )));
    };
    let (reports, warnings) = reports::reports(source.objects.slices.values());
    warn(&warnings);
    let described = Described {
        view: PoolView::of(pool),
        node_selector: pool.spec.node_selector.as_ref(),
        cards_expression: pool.spec.cards.as_deref(),
        by_node: nodes_of_pool(name, source.objects.slices.values(), &reports),
    };
    match output.and_then(ListFormat::structured) {
        Some(format) => output::structured(format, &described)?,
        None => output::print(&text(&described, output == Some(ListFormat::Wide), Paint::standard_output()))?,
    }
    Ok(verdict([&described.view].into_iter()))
}

fn text(described: &Described<'_>, is_wide: bool, paint: Paint) -> String {
    let view = &described.view;
    let state = printable(&view.state());
    let state = if view.is_ready() { paint.good(&state) } else { paint.bad(&state) };
    let mut text = format!("{}: {state}\n", paint.bold(&printable(&view.name)));
    if view.known != Known::Current {
        text += &format!("  {}\n", paint.bad(&view.known.age()));
    }
    text += &status::conditions(&view.conditions);
    let placement = &view.placement;
    text += &format!(
        "  allocation {}, strategy {}{}, topology {}, priority {}\n",
        view.allocation,
        placement.strategy,
        placement.spread_topology_key.as_ref().map(|key| format!(" over {key}")).unwrap_or_default(),
        placement.topology,
        view.priority
    );
    let nodes = described.node_selector.map_or_else(|| "all".to_owned(), labels);
    text += &format!("  nodes: {}\n", printable(&nodes));
    text += &format!("  cards: {}\n", printable(described.cards_expression.unwrap_or("all on these nodes")));
    if let (Some(cards), Some(allocated), Some(unallocatable)) =
        (view.cards, &view.allocated, &view.unallocatable)
    {
        text += &format!(
            "  {}: {allocated} allocated, {unallocatable} unallocatable\n",
            output::counted(cards as usize, "card")
        );
    }
    if !view.unmet_demand.is_empty() {
        text += "\nWaiting\n";
        let rows = view.unmet_demand.iter();
        text += &output::table(
            &["PODS", "EACH ASKS FOR"],
            rows.map(|demand| vec![demand.pods.to_string(), demand.shape.clone()]),
        );
    }
    text.push('\n');
    if described.by_node.is_empty() {
        text += "no node reports cards of this pool\n";
        return text;
    }
    let header: &[&str] =
        if is_wide { &["NODE", "CARDS", "NOTE", "ADDRESSES"] } else { &["NODE", "CARDS", "NOTE"] };
    let rows = described.by_node.iter().map(|(node, of_node)| {
        let mut row = vec![node.clone(), of_node.cards.len().to_string(), note(of_node)];
        if is_wide {
            let addresses: Vec<String> = of_node.cards.iter().map(ToString::to_string).collect();
            row.push(addresses.join(","));
        }
        row
    });
    text + &output::table(header, rows)
}

fn note(node: &NodeOfPool) -> String {
    let mut parts = Vec::new();
    parts.extend(node.error.clone());
    if !node.outranked.is_empty() {
        parts.push(format!("outranked on {}", output::counted(node.outranked.len(), "card")));
    }
    if !node.waits_for.is_empty() {
        let devices: Vec<&str> = node.waits_for.iter().map(String::as_str).collect();
        parts.push(format!("no longer offered, kept until their claims end: {}", devices.join(", ")));
    }
    parts.join("; ")
}
