//! `kubectl gpu advise`: smaller devices sufficient for claims, and the savings.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tessera_api::fleet_view::{FleetView, cards, memory};

use super::top::read;
use crate::advise::{Advice, Asked, Choice, Kind, Neighbours, Report, Row, report};
use crate::api_server::{FleetPort, Wanted, block_on, connect};
use crate::arguments::{AdviseArguments, Format};
use crate::driver_name;
use crate::output::{self, CommandError, Verdict, printable};
use crate::source::Source;

/// Runs the command.
///
/// # Errors
/// The fleet cannot be asked for, or the objects could not be read.
pub fn run(arguments: &AdviseArguments) -> Result<Verdict, CommandError> {
    let view = fleet(arguments)?;
    let source = Source::load(&arguments.source, Wanted::All { volumes: false, pools: false })?;
    let driver = arguments.driver.clone().unwrap_or_else(|| driver_name::of_cluster(&source.objects));
    let asked = Asked {
        namespace: arguments.source.namespace.as_deref(),
        driver: &driver,
        min_seconds: arguments.min_observed.as_secs(),
        kubernetes: source.kubernetes.unwrap_or_default(),
    };
    let report = report(&view, &source.objects, asked);
    match arguments.output {
        Some(Format::Json) => output::structured(Format::Json, &report)?,
        Some(Format::Yaml) => output::print(&yaml(&report)?)?,
        None if report.claims.is_empty() => {
            let there = output::there(None, arguments.source.namespace.as_deref());
            output::print(&format!("no claim holds a card{there}\n"))?;
        }
        None => output::print(&text(&report))?,
    }
    let is_any = report.claims.iter().any(|row| matches!(row.advice, Advice::Change { .. }));
    Ok(if is_any { Verdict::Yes } else { Verdict::No })
}

fn fleet(arguments: &AdviseArguments) -> Result<FleetView, CommandError> {
    if let Some(file) = &arguments.fleet {
        return read(file);
    }
    block_on(async {
        let (client, _) = connect(&arguments.source.connection, None).await?;
        Ok(FleetPort::find(client).await??.fleet().await?)
    })
}

/// A document for each manifest, with its claims.
fn yaml(report: &Report) -> Result<String, CommandError> {
    if report.manifests.is_empty() {
        return Ok("# no claim could use a smaller device\n".to_owned());
    }
    let mut rows: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in &report.claims {
        if let Some(manifest) = &row.manifest {
            rows.entry((&row.namespace, manifest)).or_default().push(row);
        }
    }
    let mut text = String::new();
    for manifest in &report.manifests {
        let title = manifest.title();
        let key = (manifest.namespace().map_or("", String::as_str), title.as_str());
        let _ = writeln!(text, "---");
        for row in rows.get(&key).into_iter().flatten() {
            let _ = writeln!(
                text,
                "# {}: {}; has {}",
                printable(&format!("{}/{}", row.namespace, row.claim)),
                printable(&used(row)),
                printable(&has(row))
            );
        }
        text += &serde_saphyr::to_string(manifest).map_err(|error| CommandError::Write(error.to_string()))?;
    }
    Ok(text)
}

fn used(row: &Row) -> String {
    format!(
        "peak {} MiB and {} of the card's multiprocessors, mean {}",
        row.memory_peak_mib.unwrap_or_default(),
        percent(row.sm_peak),
        percent(row.sm_mean)
    )
}

fn text(report: &Report) -> String {
    let header = ["CLAIM", "CARD", "HAS", "MEMORY", "SM MEAN", "SM PEAK", "OBSERVED", "ADVICE", "SAVES"];
    let currency = report.currency.as_deref().unwrap_or_default();
    let rows = report.claims.iter().map(|row| {
        vec![
            format!("{}/{}", row.namespace, row.claim),
            row.product.clone(),
            has(row),
            memory(row.memory_peak_mib, row.memory_mib),
            percent(row.sm_mean),
            percent(row.sm_peak),
            time(row.observed_seconds),
            advice(row),
            saves(row, currency),
        ]
    });
    let mut text = output::table(&header, rows);
    let changes = report.claims.iter().filter(|row| row.saves.is_some()).count();
    if changes > 0 {
        let money = report.saves_per_hour.zip(report.saves_per_month).map(|(hour, month)| {
            format!(": {} an hour, {} a month", money(currency, hour), money(currency, month))
        });
        let _ = writeln!(
            text,
            "\n{changes} of {} could use a smaller device and save {} cards' worth{}. -o yaml prints the manifests.",
            output::counted(report.claims.len(), "claim"),
            cards(report.saves),
            printable(&money.unwrap_or_default())
        );
    }
    for (product, (claims, worth)) in without_shares(report) {
        let _ = writeln!(
            text,
            "{}: {} would fit shares or time-slices worth {} cards together, but no GpuPool offers any of this \
             model (offer.sharing.mps, offer.sharing.timeSlicing).",
            printable(product),
            output::counted(claims, "bursty claim"),
            cards(worth)
        );
    }
    for found in &report.neighbours {
        let _ = writeln!(text, "{}", printable(&badly_divided(found)));
    }
    text
}

fn badly_divided(found: &Neighbours) -> String {
    match found {
        Neighbours::AtCeiling { node, device, claim, has, uses, idle } => format!(
            "{claim} has {} of the multiprocessors of {device} on {node} and uses {}, beside idle {}: a larger share would have room.",
            percent(Some(*has)),
            percent(Some(*uses)),
            idle.join(", ")
        ),
        Neighbours::TooManySlices { node, device, claims, busy, memory_peak_mib, memory_mib } => format!(
            "{device} on {node} is busy {} for {claims} time-slices, whose peaks of memory are {} together: fewer would serve each \
             better (offer.sharing.timeSlicing.replicas).",
            percent(Some(*busy)),
            memory(Some(*memory_peak_mib), Some(*memory_mib))
        ),
    }
}

/// By product: number of claims for which a share would suffice though none is offered, and the shares' worth in cards.
fn without_shares(report: &Report) -> BTreeMap<&str, (usize, f64)> {
    let mut found: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for row in &report.claims {
        if let Some(worth) = row.share_worth {
            let known = found.entry(&row.product).or_default();
            *known = (known.0 + 1, known.1 + worth);
        }
    }
    found
}

fn has(row: &Row) -> String {
    match &row.has {
        Some(kind) => words(kind),
        None => row.device.clone(),
    }
}

fn words(kind: &Kind) -> String {
    match kind {
        Kind::Card => "whole card".to_owned(),
        Kind::Partition { profile } => format!("partition {profile}"),
        Kind::MpsShare { profile: None } => "MPS share".to_owned(),
        Kind::MpsShare { profile: Some(profile) } => format!("MPS share of {profile}"),
        Kind::TimeSlice { slots } => format!("time-slice, 1 of {slots}"),
    }
}

fn advice(row: &Row) -> String {
    match &row.advice {
        Advice::Change { to } => {
            let class = if to.class.is_some() { "" } else { " (no DeviceClass selects it)" };
            format!("{}{class}", choice(to))
        }
        Advice::Fits => "fits".to_owned(),
        Advice::AbovePart { ask_memory_mib: Some(ask) } => format!("above its part: ask for {ask}Mi"),
        Advice::AbovePart { ask_memory_mib: None } => "above its part: needs more than a card has".to_owned(),
        Advice::NotEnoughSeen => "observed too briefly".to_owned(),
        Advice::NotMeasured => "no usage data".to_owned(),
        Advice::Together { devices } => format!("fits: {devices} devices work together"),
        Advice::NothingOffered => "no device of this model is offered".to_owned(),
    }
}

fn choice(to: &Choice) -> String {
    let mut text = words(&to.kind);
    if let Some(compute) = to.compute {
        let _ = write!(text, ", {}Mi, {compute} %", to.memory_mib);
    }
    if let Some(held_to) = to.bursts_held_to {
        let _ = write!(text, ", bursts limited to {}", percent(Some(held_to)));
    }
    text
}

fn saves(row: &Row, currency: &str) -> String {
    let Some(saved) = row.saves else { return "-".to_owned() };
    match row.saves_per_hour {
        Some(per_hour) => format!("{} ({}/h)", cards(saved), money(currency, per_hour)),
        None => cards(saved),
    }
}

fn money(currency: &str, amount: f64) -> String {
    format!("{currency} {amount:.2}").trim_start().to_owned()
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

fn time(seconds: u64) -> String {
    match seconds {
        0 => "-".to_owned(),
        1..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}
