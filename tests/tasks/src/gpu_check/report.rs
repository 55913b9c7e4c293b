use std::fmt::Write;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};

use super::compare::{Comparison, Verdict};
use super::mps::{Outcome, Trial};

impl Verdict {
    fn text(self) -> &'static str {
        match self {
            Verdict::Ok => "OK",
            Verdict::Different => "DIFFERENT",
            Verdict::NotCompared => "NOT COMPARED",
        }
    }
}

/// One table for the machine and one for each card, then a summary line.
pub(super) fn tables(comparisons: &[Comparison]) -> String {
    let mut text = String::new();
    for group in comparisons.chunk_by(|one, other| one.card == other.card) {
        let title = group.first().and_then(|first| first.card.as_deref()).unwrap_or("machine");
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header([title, "tessera-nvml", "nvidia-smi", ""]);
        for comparison in group {
            let theirs = comparison.theirs.as_deref().unwrap_or("-");
            table.add_row([&comparison.field, &comparison.ours, theirs, comparison.verdict.text()]);
        }
        let _ = writeln!(text, "{table}\n");
    }
    let count = |verdict| comparisons.iter().filter(|comparison| comparison.verdict == verdict).count();
    let _ = write!(
        text,
        "{} OK, {} different, {} not compared",
        count(Verdict::Ok),
        count(Verdict::Different),
        count(Verdict::NotCompared)
    );
    text
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Outcome::Ok => "OK",
            Outcome::Otherwise => "OTHERWISE",
            Outcome::NotTried => "NOT TRIED",
        }
    }
}

fn count(trials: &[Trial], outcome: Outcome) -> usize {
    trials.iter().filter(|trial| trial.outcome == outcome).count()
}

/// A table, then a summary line.
pub(super) fn trials_table(trials: &[Trial]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["MPS", "expected", "found", ""]);
    for trial in trials {
        table.add_row([&*trial.what, &trial.expected, &trial.found, trial.outcome.text()]);
    }
    let [ok, otherwise, not_tried] =
        [Outcome::Ok, Outcome::Otherwise, Outcome::NotTried].map(|outcome| count(trials, outcome));
    format!("{table}\n\n{ok} OK, {otherwise} otherwise, {not_tried} not tried")
}

/// `{"trials": [{what, expected, found, outcome}], "otherwise": N}`.
pub(super) fn trials_json(trials: &[Trial]) -> Value {
    let all: Vec<Value> = trials
        .iter()
        .map(|Trial { what, expected, found, outcome }| {
            json!({"what": what, "expected": expected, "found": found, "outcome": outcome.text()})
        })
        .collect();
    json!({ "trials": all, "otherwise": count(trials, Outcome::Otherwise) })
}

/// `{"fields": [{card, field, nvml, nvidiaSmi, verdict}], "different": N}`.
pub(super) fn json(comparisons: &[Comparison]) -> Value {
    let fields: Vec<Value> = comparisons
        .iter()
        .map(|comparison| {
            json!({
                "card": comparison.card,
                "field": comparison.field,
                "nvml": comparison.ours,
                "nvidiaSmi": comparison.theirs,
                "verdict": comparison.verdict.text(),
            })
        })
        .collect();
    let different = comparisons.iter().filter(|comparison| comparison.verdict == Verdict::Different).count();
    json!({ "fields": fields, "different": different })
}
