//! `kubectl gpu report`: GPU hours of teams by period, from the status of the GpuQuotas.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::civil::Date;
use k8s_openapi::jiff::tz::TimeZone;
use serde::Serialize;
use tessera_api::fleet_view::cards;
use tessera_api::gpu_quota::{GpuQuota, HoursStatus, PeriodStatus};

use crate::api_server::Wanted;
use crate::arguments::{Format, Price, ReportArguments, ReportFormat};
use crate::commands::quota;
use crate::output::{self, CommandError, Verdict, or_dash};
use crate::source::Source;

/// In place of a product name.
const UNKNOWN: &str = "unknown";

/// Seconds of a card that models may lack by rounding: no hundredth of an hour.
const LEAST_UNKNOWN: u64 = 35;

/// Hours of a team in a period, or those of a model.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'q> {
    team: &'q str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'q str>,
    /// Start of the period, in RFC 3339.
    since: &'q str,
    /// Its end; of the current period, the time until which the hours are counted.
    until: &'q str,
    is_current: bool,
    /// Product name; `unknown` for cards that were not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'q str>,
    /// With two decimals.
    gpu_hours: String,
    card_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// The quotas could not be read, or the kind does not exist.
pub fn run(arguments: &ReportArguments) -> Result<Verdict, CommandError> {
    let source = Source::load(&arguments.source, Wanted::Quotas)?;
    let quotas = quota::of_source(&source)?;
    let rows: Vec<Row<'_>> = quotas.values().flat_map(|quota| rows(quota, arguments)).collect();
    match arguments.output {
        ReportFormat::Json => output::structured(Format::Json, &rows)?,
        ReportFormat::Csv => output::print(&csv(&rows, arguments.by_model))?,
        ReportFormat::Table if quotas.is_empty() => {
            output::print("there are no GpuQuotas: GPU hours are those of their teams\n")?;
        }
        ReportFormat::Table if rows.is_empty() => output::print("there are no GPU hours of that time\n")?,
        ReportFormat::Table => output::print(&table(&rows, arguments))?,
    }
    Ok(if rows.is_empty() { Verdict::No } else { Verdict::Yes })
}

/// Hours of a team in a period, as told by the status.
struct Period<'q> {
    since: &'q str,
    until: &'q str,
    is_current: bool,
    card_seconds: u64,
    models: &'q BTreeMap<String, u64>,
}

impl<'q> Period<'q> {
    fn current(HoursStatus { since, as_of, card_seconds, models, .. }: &'q HoursStatus) -> Self {
        Period { since, until: as_of, is_current: true, card_seconds: *card_seconds, models }
    }

    fn past(PeriodStatus { since, until, card_seconds, models, .. }: &'q PeriodStatus) -> Self {
        Period { since, until, is_current: false, card_seconds: *card_seconds, models }
    }

    /// Seconds of a card by product name, those of unknown cards at the end.
    fn by_model(&self) -> impl Iterator<Item = (&'q str, u64)> {
        let known = self.models.values().copied().fold(0, u64::saturating_add);
        let rest = self.card_seconds.saturating_sub(known);
        let rest = (rest > LEAST_UNKNOWN || self.models.is_empty()).then_some((UNKNOWN, rest));
        self.models.iter().map(|(model, seconds)| (model.as_str(), *seconds)).chain(rest)
    }
}

/// The cost of these seconds of a card of the model: nothing without a price.
fn cost(prices: &[Price], model: &str, card_seconds: u64) -> f64 {
    let price = |of: Option<&str>| prices.iter().find(|price| price.model.as_deref() == of);
    let price = price(Some(model)).or_else(|| price(None));
    price.map_or(0.0, |price| card_seconds as f64 / 3600.0 * price.amount)
}

/// The wanted periods of a quota, the latest first.
fn rows<'q>(quota: &'q GpuQuota, arguments: &ReportArguments) -> Vec<Row<'q>> {
    let ReportArguments { prices, by_model, from, to, .. } = arguments;
    let row = |period: &Period<'q>, model, card_seconds: u64, cost: f64| Row {
        team: quota.metadata.name.as_deref().unwrap_or_default(),
        parent: quota.spec.parent.as_deref(),
        since: period.since,
        until: period.until,
        is_current: period.is_current,
        model,
        gpu_hours: cards(card_seconds as f64 / 3600.0),
        card_seconds,
        cost: (!prices.is_empty()).then(|| format!("{cost:.2}")),
    };
    let status = quota.status.iter();
    let current = status.clone().filter_map(|status| status.hours.as_ref()).map(Period::current);
    let past = status.flat_map(|status| &status.periods).map(Period::past);
    let is_wanted = |period: &Period<'_>| {
        let Some(day) = day(period.since) else { return true };
        from.is_none_or(|from| from <= day) && to.is_none_or(|to| day <= to)
    };
    let rows_of = |period: Period<'q>| -> Vec<Row<'q>> {
        let models = period.by_model().map(|(model, seconds)| (model, seconds, cost(prices, model, seconds)));
        match by_model {
            true => models.map(|(model, seconds, cost)| row(&period, Some(model), seconds, cost)).collect(),
            false => vec![row(&period, None, period.card_seconds, models.map(|(_, _, cost)| cost).sum())],
        }
    };
    current.chain(past).filter(is_wanted).flat_map(rows_of).collect()
}

/// The day of this time, in UTC.
fn day(time: &str) -> Option<Date> {
    Some(time.parse::<Timestamp>().ok()?.to_zoned(TimeZone::UTC).date())
}

fn table(rows: &[Row<'_>], arguments: &ReportArguments) -> String {
    let mut header = vec!["TEAM", "PARENT", "SINCE", "UNTIL"];
    header.extend(arguments.by_model.then_some("MODEL"));
    header.push("GPU HOURS");
    header.extend((!arguments.prices.is_empty()).then_some("COST"));
    let cells = rows.iter().map(|row| {
        let until = quota::day(row.until);
        let until = if row.is_current { format!("{until}, so far") } else { until.to_owned() };
        let mut cells =
            vec![row.team.to_owned(), or_dash(row.parent), quota::day(row.since).to_owned(), until];
        cells.extend(row.model.map(str::to_owned));
        cells.push(row.gpu_hours.clone());
        cells.extend(row.cost.clone());
        cells
    });
    output::table(&header, cells)
}

/// Names and figures have nothing to quote.
fn csv(rows: &[Row<'_>], by_model: bool) -> String {
    let model = if by_model { "model," } else { "" };
    let mut text = format!("team,parent,since,until,current,{model}gpu_hours,cost\n");
    for Row { team, parent, since, until, is_current, model, gpu_hours, cost, .. } in rows {
        let (parent, cost) = (parent.unwrap_or_default(), cost.as_deref().unwrap_or_default());
        let model = model.map(|model| format!("{model},")).unwrap_or_default();
        text += &format!("{team},{parent},{since},{until},{is_current},{model}{gpu_hours},{cost}\n");
    }
    text
}
