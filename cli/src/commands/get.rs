//! `kubectl gpu get`: devices, claims and their holders.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::api_server::Wanted;
use crate::arguments::{Format, GetArguments, ListFormat, Listed};
use crate::get::{ClaimRow, DeviceRow, claims, devices};
use crate::output::{self, CommandError, Verdict, or_dash};
use crate::source::Source;

/// How often is looked with --watch.
const EVERY: Duration = Duration::from_secs(2);

/// Runs the command.
///
/// # Errors
/// The objects could not be read.
pub fn run(arguments: &GetArguments) -> Result<Verdict, CommandError> {
    match arguments.listed {
        Listed::Devices => list(arguments, |source| {
            let namespace = arguments.only_namespace();
            devices(&source.objects, arguments.node.as_deref(), namespace, arguments.all)
        }),
        Listed::Claims => list(arguments, |source| {
            let namespace = arguments.only_namespace();
            claims(&source.objects, arguments.node.as_deref(), namespace)
        }),
    }
}

/// A row of a table.
trait Row: Serialize + PartialEq + Clone {
    const HEADER: &'static [&'static str];
    const WIDE: &'static [&'static str];
    const NOTHING: &'static str;

    /// The row's identity among all rows.
    fn key(&self) -> (String, String);

    fn cells(&self, is_wide: bool) -> Vec<String>;
}

fn list<R: Row>(arguments: &GetArguments, rows: impl Fn(&Source) -> Vec<R>) -> Result<Verdict, CommandError> {
    // A node's claims are found by its slices, for which the API server has a field selector.
    let read = || {
        let wanted = Wanted::Holders { node: arguments.node.clone() };
        Source::load(&arguments.source, wanted).map(|source| rows(&source))
    };
    let first = read()?;
    let is_wide = arguments.output == Some(ListFormat::Wide);
    if !arguments.watch {
        match arguments.output {
            Some(ListFormat::Json) => output::structured(Format::Json, &first)?,
            Some(ListFormat::Yaml) => output::structured(Format::Yaml, &first)?,
            _ if first.is_empty() => {
                let there = output::there(arguments.node.as_deref(), arguments.only_namespace());
                output::print(&format!("{}{there}\n", R::NOTHING))?;
            }
            _ => output::print(&table(&first, is_wide))?,
        }
        return Ok(if first.is_empty() { Verdict::No } else { Verdict::Yes });
    }
    let told = |rows: &[R], with_header: bool| match arguments.output {
        Some(ListFormat::Json | ListFormat::Yaml) => {
            let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
            let lines = lines.map_err(|error| CommandError::Write(error.to_string()))?;
            output::print(&lines.into_iter().map(|line| line + "\n").collect::<String>())
        }
        _ => {
            let text = table(rows, is_wide);
            let text =
                if with_header { text } else { text.split_once('\n').unwrap_or_default().1.to_owned() };
            output::print(&text)
        }
    };
    told(&first, true)?;
    let mut known: BTreeMap<(String, String), R> = first.into_iter().map(|row| (row.key(), row)).collect();
    loop {
        std::thread::sleep(EVERY);
        let now: BTreeMap<(String, String), R> = match read() {
            Ok(rows) => rows.into_iter().map(|row| (row.key(), row)).collect(),
            // The last rows stay; the next read may succeed.
            Err(error) => {
                output::warn(&[error.to_string()]);
                continue;
            }
        };
        let changed: Vec<R> = now
            .iter()
            .filter(|(key, row)| known.get(*key) != Some(row))
            .map(|(_, row)| row.clone())
            .collect();
        if !changed.is_empty() {
            told(&changed, false)?;
        }
        for (namespace, name) in known.keys().filter(|key| !now.contains_key(*key)) {
            output::print(&gone(arguments.output, namespace, name)?)?;
        }
        known = now;
    }
}

fn gone(output: Option<ListFormat>, first: &str, second: &str) -> Result<String, CommandError> {
    match output {
        Some(ListFormat::Json | ListFormat::Yaml) => {
            let line = serde_json::to_string(&serde_json::json!({ "gone": [first, second] }));
            line.map(|line| line + "\n").map_err(|error| CommandError::Write(error.to_string()))
        }
        _ => Ok(format!("{}   {}   gone\n", output::printable(first), output::printable(second))),
    }
}

fn table<R: Row>(rows: &[R], is_wide: bool) -> String {
    let mut header = R::HEADER.to_vec();
    if is_wide {
        header.extend(R::WIDE);
    }
    output::table(&header, rows.iter().map(|row| row.cells(is_wide)))
}

impl Row for DeviceRow {
    const HEADER: &'static [&'static str] = &["NODE", "DEVICE", "TYPE", "PROFILE", "HELD BY", "PODS"];
    const WIDE: &'static [&'static str] = &["PRODUCT", "MEMORY", "POOL", "UUID", "TAINTS"];
    const NOTHING: &'static str = "no published card matches";

    fn key(&self) -> (String, String) {
        (self.node.clone(), self.device.clone())
    }

    fn cells(&self, is_wide: bool) -> Vec<String> {
        let claims: Vec<String> = self
            .held
            .iter()
            .map(|held| {
                let consumes: Vec<String> =
                    held.consumes.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
                if consumes.is_empty() {
                    held.claim.clone()
                } else {
                    format!("{} ({})", held.claim, consumes.join(", "))
                }
            })
            .collect();
        let pods: Vec<&str> = self.held.iter().flat_map(|held| held.by.iter().map(String::as_str)).collect();
        let mut cells = vec![
            self.node.clone(),
            self.device.clone(),
            or_dash(Some(&self.device_type)),
            or_dash(self.profile.as_deref()),
            or_dash(Some(&claims.join(", "))),
            or_dash(Some(&pods.join(", "))),
        ];
        if is_wide {
            cells.extend([
                or_dash(self.product.as_deref()),
                or_dash(self.memory.as_deref()),
                or_dash(self.pool.as_deref()),
                or_dash(self.uuid.as_deref()),
                or_dash(Some(&self.taints.join(", "))),
            ]);
        }
        cells
    }
}

impl Row for ClaimRow {
    const HEADER: &'static [&'static str] = &["NAMESPACE", "CLAIM", "STATE", "NODE", "DEVICES", "PODS"];
    const WIDE: &'static [&'static str] = &["CLASSES"];
    const NOTHING: &'static str = "no claim holds cards or waits for any";

    fn key(&self) -> (String, String) {
        (self.namespace.clone(), self.claim.clone())
    }

    fn cells(&self, is_wide: bool) -> Vec<String> {
        let mut cells = vec![
            self.namespace.clone(),
            self.claim.clone(),
            self.state.to_owned(),
            or_dash(Some(&self.nodes.join(", "))),
            or_dash(Some(&self.devices.join(", "))),
            or_dash(Some(&self.by.join(", "))),
        ];
        if is_wide {
            cells.push(or_dash(Some(&self.classes.join(", "))));
        }
        cells
    }
}
