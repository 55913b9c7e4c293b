//! `kubectl gpu report`: GPU hours of teams by period, from the status of the GpuQuotas.

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::civil::Date;
use k8s_openapi::jiff::tz::TimeZone;
use serde::Serialize;
use tessera_api::gpu_quota::GpuQuota;

use crate::api_server::Wanted;
use crate::arguments::{Format, ReportArguments, ReportFormat};
use crate::commands::quota;
use crate::output::{self, CommandError, Verdict, or_dash};
use crate::source::Source;

/// Hours of a team in a period.
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
    /// With two decimals.
    gpu_hours: &'q str,
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
        ReportFormat::Csv => output::print(&csv(&rows))?,
        ReportFormat::Table if rows.is_empty() => output::print("there are no GPU hours\n")?,
        ReportFormat::Table => output::print(&table(&rows, arguments.price.is_some()))?,
    }
    Ok(if rows.is_empty() { Verdict::No } else { Verdict::Yes })
}

/// The wanted periods of a quota, the latest first.
fn rows<'q>(quota: &'q GpuQuota, arguments: &ReportArguments) -> Vec<Row<'q>> {
    let row = |since, until, is_current, gpu_hours, card_seconds: u64| Row {
        team: quota.metadata.name.as_deref().unwrap_or_default(),
        parent: quota.spec.parent.as_deref(),
        since,
        until,
        is_current,
        gpu_hours,
        card_seconds,
        cost: arguments.price.map(|price| format!("{:.2}", card_seconds as f64 / 3600.0 * price)),
    };
    let status = quota.status.iter();
    let current = status.clone().filter_map(|status| status.hours.as_ref());
    let current = current.map(|hours| row(&hours.since, &hours.as_of, true, &hours.used, hours.card_seconds));
    let past = status.flat_map(|status| &status.periods);
    let past = past.map(|past| row(&past.since, &past.until, false, &past.used, past.card_seconds));
    let is_wanted = |row: &Row<'_>| {
        let Some(day) = day(row.since) else { return true };
        arguments.from.is_none_or(|from| from <= day) && arguments.to.is_none_or(|to| day <= to)
    };
    current.chain(past).filter(is_wanted).collect()
}

/// The day of this time, in UTC.
fn day(time: &str) -> Option<Date> {
    Some(time.parse::<Timestamp>().ok()?.to_zoned(TimeZone::UTC).date())
}

fn table(rows: &[Row<'_>], has_price: bool) -> String {
    let mut header = vec!["TEAM", "PARENT", "SINCE", "UNTIL", "GPU HOURS"];
    header.extend(has_price.then_some("COST"));
    let cells = rows.iter().map(|row| {
        let until = quota::day(row.until);
        let until = if row.is_current { format!("{until}, so far") } else { until.to_owned() };
        let since = quota::day(row.since).to_owned();
        let mut cells =
            vec![row.team.to_owned(), or_dash(row.parent), since, until, row.gpu_hours.to_owned()];
        cells.extend(row.cost.clone());
        cells
    });
    output::table(&header, cells)
}

/// Names and figures have nothing to quote.
fn csv(rows: &[Row<'_>]) -> String {
    let mut text = "team,parent,since,until,current,gpu_hours,cost\n".to_owned();
    for Row { team, parent, since, until, is_current, gpu_hours, cost, .. } in rows {
        let (parent, cost) = (parent.unwrap_or_default(), cost.as_deref().unwrap_or_default());
        text += &format!("{team},{parent},{since},{until},{is_current},{gpu_hours},{cost}\n");
    }
    text
}
