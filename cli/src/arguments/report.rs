//! The command line of `kubectl gpu report`.

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::civil::Date;

use super::{SourceArguments, help};

/// The output format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// A table
    Table,
    /// Comma-separated values with a header
    Csv,
    /// JSON
    Json,
}

/// `kubectl gpu report`
#[derive(Debug, Args)]
#[command(after_help = help::REPORT_HELP)]
pub struct ReportArguments {
    /// Only periods that begin in this month or on this day, or later: 2026-11 or 2026-11-01
    #[arg(long, value_name = "DATE", value_parser = first_day)]
    pub from: Option<Date>,
    /// Only periods that begin in this month or on this day, or earlier
    #[arg(long, value_name = "DATE", value_parser = last_day)]
    pub to: Option<Date>,
    /// The hours of each model of cards apart
    #[arg(long)]
    pub by_model: bool,
    /// Price of an hour of a card, of this model or of all others: adds the cost; may be repeated
    #[arg(long = "price", value_name = "[MODEL=]AMOUNT", value_parser = price)]
    pub prices: Vec<Price>,
    /// Table, CSV or JSON
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: ReportFormat,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// Price of an hour of a card.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// Product name; `None`: all models without a price of their own.
    pub model: Option<String>,
    /// 0 or more.
    pub amount: f64,
}

/// The day, or the first of the month.
fn first_day(text: &str) -> Result<Date, String> {
    let day = text.parse().or_else(|_| format!("{text}-01").parse());
    day.map_err(|_| "must be a month or a day, as 2026-11 or 2026-11-01".to_owned())
}

/// The day, or the last of the month.
fn last_day(text: &str) -> Result<Date, String> {
    text.parse().or_else(|_| first_day(text).map(Date::last_of_month))
}

fn price(text: &str) -> Result<Price, String> {
    let (model, amount) = text.rsplit_once('=').map_or((None, text), |(model, amount)| (Some(model), amount));
    let amount: f64 = amount.parse().map_err(|_| "must be a number".to_owned())?;
    let price = Price { model: model.map(str::to_owned), amount };
    if amount.is_finite() && amount >= 0.0 { Ok(price) } else { Err("must be 0 or more".to_owned()) }
}
