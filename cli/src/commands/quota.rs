//! `kubectl gpu quota`: the GpuQuotas, or one of them.

mod native;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tessera_api::gpu_quota::{GpuQuota, PeriodStatus};
use tessera_api::label_selector::LabelSelector;
use tessera_cluster::Key;

use crate::api_server::Wanted;
use crate::arguments::{ListFormat, QuotaArguments};
use crate::hints;
use crate::labels::labels;
use crate::output::{self, CommandError, Paint, Verdict, or_dash, printable};
use crate::quotas::{AmountView, QuotaView};
use crate::source::Source;
use crate::status::{self, Known};

/// Runs the command.
///
/// # Errors
/// The quotas could not be read, or the kind or the named quota does not exist.
pub fn run(arguments: &QuotaArguments) -> Result<Verdict, CommandError> {
    let source = Source::load(&arguments.source, Wanted::Quotas)?;
    let quotas = of_source(&source)?;
    if arguments.native {
        return native(arguments.name.as_deref(), quotas.values());
    }
    match &arguments.name {
        None => list(arguments.output, quotas.values()),
        Some(name) => one(arguments.output, name, quotas.values()),
    }
}

/// The quotas of the cluster or the files.
///
/// # Errors
/// The API server does not know the kind.
pub fn of_source(source: &Source) -> Result<&BTreeMap<Key, GpuQuota>, CommandError> {
    source.quotas.as_ref().ok_or_else(|| {
        CommandError::Asked(
            "the cluster has no GpuQuotas: the CustomResourceDefinition gpuquotas.gpu.tessera.dev is not installed; \
             this version's chart contains it (docs/installing.md)"
                .to_owned(),
        )
    })
}

fn list<'q>(
    output: Option<ListFormat>,
    quotas: impl Iterator<Item = &'q GpuQuota>,
) -> Result<Verdict, CommandError> {
    let views: Vec<QuotaView> = quotas.map(QuotaView::of).collect();
    if let Some(format) = output.and_then(ListFormat::structured) {
        output::structured(format, &views)?;
    } else if views.is_empty() {
        output::print("there are no GpuQuotas: no team has a guarantee or a limit\n")?;
    } else {
        let notes = status::notes(views.iter().map(|view| (view.name.as_str(), view.known)));
        output::print(&(table(&views, output == Some(ListFormat::Wide)) + &notes))?;
    }
    Ok(if views.iter().all(QuotaView::is_ready) { Verdict::Yes } else { Verdict::No })
}

/// A row for each amount.
fn table(views: &[QuotaView], is_wide: bool) -> String {
    let mut header = vec![
        "NAME",
        "AMOUNT",
        "GUARANTEED",
        "LIMIT",
        "USED",
        "BORROWED",
        "LENT",
        "HOURS",
        "WAITING",
        "STATE",
    ];
    if is_wide {
        header.extend(["HOURS LEFT", "PARENT", "WEIGHT", "PRIORITY", "SHARE", "MESSAGE"]);
    }
    let row = |view: &QuotaView, amount: Option<&AmountView>| {
        let mut row = vec![view.name.clone()];
        row.extend(cells(amount));
        row.extend([or_dash(view.hours_text()), or_dash(view.waiting), view.known.state(view.ready())]);
        if is_wide {
            row.extend([
                or_dash(view.hours_left()),
                or_dash(view.parent.as_ref()),
                view.weight.to_string(),
                view.priority.to_string(),
                or_dash(view.share.as_ref()),
                view.ready().map(|condition| condition.message.clone()).unwrap_or_default(),
            ]);
        }
        row
    };
    let rows = views.iter().flat_map(|view| {
        let without = view.amounts.is_empty().then_some(None);
        without.into_iter().chain(view.amounts.iter().map(Some)).map(move |amount| row(view, amount))
    });
    output::table(&header, rows)
}

/// Name, guarantee, limit, and amounts used, borrowed and lent.
fn cells(amount: Option<&AmountView>) -> [String; 6] {
    let text = |field: fn(&AmountView) -> Option<&String>| or_dash(amount.and_then(field));
    [
        text(|amount| Some(&amount.name)),
        text(|amount| Some(&amount.guaranteed)),
        text(|amount| amount.limit.as_ref()),
        text(|amount| amount.used.as_ref()),
        text(|amount| amount.borrowed.as_ref()),
        text(|amount| amount.lent.as_ref()),
    ]
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Described<'a> {
    #[serde(flatten)]
    view: QuotaView,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace_selector: Option<&'a LabelSelector>,
    min_runtime_seconds: u32,
}

/// The ResourceQuotas nearest to all quotas, or to this one.
fn native<'q>(
    name: Option<&str>,
    quotas: impl Iterator<Item = &'q GpuQuota> + Clone,
) -> Result<Verdict, CommandError> {
    let wanted = match name {
        Some(name) => vec![find(name, quotas)?],
        None => quotas.collect(),
    };
    let manifests: Vec<String> = wanted.into_iter().filter_map(native::manifest).collect();
    if manifests.is_empty() {
        let why = "no ResourceQuota comes near: it takes a GpuQuota with a namespaceSelector, and an amount of cards of any model with a guarantee or a limit";
        return Err(CommandError::Asked(why.to_owned()));
    }
    output::print(&manifests.join("---\n"))?;
    Ok(Verdict::Yes)
}

fn find<'q>(
    name: &str,
    mut quotas: impl Iterator<Item = &'q GpuQuota> + Clone,
) -> Result<&'q GpuQuota, CommandError> {
    let known: BTreeSet<String> = quotas.clone().filter_map(|quota| quota.metadata.name.clone()).collect();
    quotas.find(|quota| quota.metadata.name.as_deref() == Some(name)).ok_or_else(|| {
        let near = hints::nearest(name, &known).map(|near| format!(": did you mean {near}?"));
        CommandError::Asked(format!(
            "there is no GpuQuota {name}{}",
            near.unwrap_or_else(|| "; `kubectl gpu quota` lists them".to_owned())
        ))
    })
}

fn one<'q>(
    output: Option<ListFormat>,
    name: &str,
    quotas: impl Iterator<Item = &'q GpuQuota> + Clone,
) -> Result<Verdict, CommandError> {
    let quota = find(name, quotas)?;
    let described = Described {
        view: QuotaView::of(quota),
        namespace_selector: quota.spec.namespace_selector.as_ref(),
        min_runtime_seconds: quota.spec.min_runtime_seconds,
    };
    match output.and_then(ListFormat::structured) {
        Some(format) => output::structured(format, &described)?,
        None => output::print(&text(&described, Paint::standard_output()))?,
    }
    Ok(if described.view.is_ready() { Verdict::Yes } else { Verdict::No })
}

fn text(described: &Described<'_>, paint: Paint) -> String {
    let view = &described.view;
    let state = printable(&view.known.state(view.ready()));
    let state = if view.is_ready() { paint.good(&state) } else { paint.bad(&state) };
    let mut text = format!("{}: {state}\n", paint.bold(&printable(&view.name)));
    if view.known != Known::Current {
        text += &format!("  {}\n", paint.bad(&view.known.age()));
    }
    text += &status::conditions(&view.conditions);
    let namespaces = described.namespace_selector.map_or_else(|| "none of its own".to_owned(), labels);
    text += &format!("  namespaces: {}\n", printable(&namespaces));
    let parent = view.parent.as_ref().map(|parent| format!("parent {}, ", printable(parent)));
    text += &format!(
        "  {}weight {}, priority {}, borrowed devices stay for {} s at least\n",
        parent.unwrap_or_default(),
        view.weight,
        view.priority,
        described.min_runtime_seconds
    );
    if let Some(waiting) = view.waiting {
        text += &format!("  {} waiting", output::counted(waiting as usize, "pod"));
        if let Some(share) = view.share.as_ref().filter(|share| !share.is_empty()) {
            text += &format!(", {} % of the use of all teams by weight", printable(share));
        }
        if let Some(recent) = view.recent_use.as_ref().and_then(|text| text.parse::<f64>().ok()) {
            text += &format!(", recent use {}", tessera_api::fleet_view::cards(recent));
        }
        text.push('\n');
    }
    if let (Some(hours), Some(used)) = (&view.hours, view.hours_text()) {
        text += &format!("  {} GPU hours since {}\n", printable(&used), printable(day(&hours.since)));
    }
    if !view.amounts.is_empty() {
        let rows = view.amounts.iter().map(|amount| cells(Some(amount)).to_vec());
        let header = ["AMOUNT", "GUARANTEED", "LIMIT", "USED", "BORROWED", "LENT"];
        text = text + "\n" + &output::table(&header, rows);
    }
    if !view.periods.is_empty() {
        let row = |period: &PeriodStatus| {
            [day(&period.since), day(&period.until), &period.used].map(str::to_owned).to_vec()
        };
        text = text + "\n" + &output::table(&["SINCE", "UNTIL", "GPU HOURS"], view.periods.iter().map(row));
    }
    text
}

/// The day of a time in RFC 3339.
pub fn day(time: &str) -> &str {
    time.split('T').next().unwrap_or(time)
}
