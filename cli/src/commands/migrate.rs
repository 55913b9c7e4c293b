//! `kubectl gpu migrate`: from another driver to this one.

use std::fmt::Write as _;

use crate::api_server::Wanted;
use crate::arguments::{Format, MigrateArguments, PlanFormat};
use crate::migrate::{Known, Plan, Step, plan};
use crate::output::{self, CommandError, Paint, Verdict, printable};
use crate::source::Source;

/// Runs the command.
///
/// # Errors
/// The objects could not be read, or none belong to the other driver.
pub fn run(arguments: &MigrateArguments) -> Result<Verdict, CommandError> {
    let source = Source::load(&arguments.source, Wanted::Migration)?;
    let known = Known {
        objects: &source.objects,
        foreign: &source.foreign,
        namespace: arguments.source.namespace.as_deref(),
    };
    let plan = plan(arguments.from, known).map_err(|error| CommandError::Asked(error.to_string()))?;
    match arguments.output {
        Some(PlanFormat::Json) => output::structured(Format::Json, &plan)?,
        Some(PlanFormat::Values) => output::print(&output::yaml(&plan.values)?)?,
        Some(PlanFormat::Yaml) => {
            let manifests: Result<Vec<String>, CommandError> =
                plan.pools.iter().chain(&plan.classes).map(output::yaml).collect();
            output::print(&manifests?.join("---\n"))?;
        }
        None => output::print(&text(&plan, Paint::standard_output())?)?,
    }
    Ok(Verdict::Yes)
}

fn text(plan: &Plan, paint: Paint) -> Result<String, CommandError> {
    let mut text = format!("{}\n", paint.bold(&format!("From {}", plan.from)));
    for found in &plan.found {
        let _ = writeln!(text, "  {}", printable(found));
    }
    let _ = writeln!(text, "\n{}", paint.bold("values.yaml (-o values)"));
    for line in output::yaml(&plan.values)?.lines() {
        let _ = writeln!(text, "  {}", printable(line));
    }
    if !plan.pools.is_empty() || !plan.classes.is_empty() {
        let _ = writeln!(text, "\n{}", paint.bold("Manifests (-o yaml)"));
        for manifest in plan.pools.iter().chain(&plan.classes) {
            for (number, line) in output::yaml(manifest)?.lines().enumerate() {
                let mark = if number == 0 { "- " } else { "  " };
                let _ = writeln!(text, "  {mark}{}", printable(line));
            }
        }
    }
    if !plan.notes.is_empty() {
        let _ = writeln!(text, "\n{}", paint.bold("Different, or not carried over"));
        for note in &plan.notes {
            let _ = writeln!(text, "  {}: {}", paint.hint(&printable(&note.about)), printable(&note.what));
        }
    }
    if !plan.workloads.is_empty() {
        let _ = writeln!(text, "\n{}", paint.bold("Workloads with cards"));
        let rows = plan.workloads.iter().map(|workload| {
            let pods = if workload.pods == 0 { "-".to_owned() } else { workload.pods.to_string() };
            vec![workload.name.clone(), pods, workload.asks.clone(), workload.becomes.clone()]
        });
        text += &output::table(&["WHO", "PODS", "ASKS FOR", "BECOMES"], rows);
    }
    let _ = writeln!(text, "\n{}", paint.bold("Steps"));
    steps(&mut text, &plan.steps.before);
    for node in &plan.steps.nodes {
        let cards = node.cards.as_ref().map(|cards| format!(": {cards}")).unwrap_or_default();
        let pods =
            if node.pods.is_empty() { String::new() } else { format!("; has {}", node.pods.join(", ")) };
        let _ = writeln!(text, "  {}", printable(&format!("Node {}{cards}{pods}", node.node)));
        commands(&mut text, &node.commands);
    }
    steps(&mut text, &plan.steps.after);
    Ok(text)
}

fn steps(text: &mut String, steps: &[Step]) {
    for step in steps {
        let _ = writeln!(text, "  {}", printable(&step.what));
        commands(text, &step.commands);
    }
}

fn commands(text: &mut String, commands: &[String]) {
    for command in commands {
        let _ = writeln!(text, "    $ {}", printable(command));
    }
}
