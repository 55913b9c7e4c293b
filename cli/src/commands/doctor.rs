//! `kubectl gpu doctor`: problems of Tessera in a cluster, and remedies.

use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tessera_api::DEFAULT_DRIVER_NAME;
use tessera_cluster::Key;

use crate::api_server::{Wanted, block_on, connect, fold_slices, live};
use crate::arguments::DoctorArguments;
use crate::doctor::published::Published;
use crate::doctor::{Facts, Finding, Live, Severity, findings};
use crate::driver_name::{self, OfSlices};
use crate::hints;
use crate::output::{self, CommandError, Paint, Verdict, printable, warn};
use crate::source::Source;

/// Runs the command.
///
/// # Errors
/// The objects could not be read, or there is no such node.
pub fn run(arguments: &DoctorArguments) -> Result<Verdict, CommandError> {
    let source = Source::load(&arguments.source, Wanted::Installation)?;
    let told = arguments.driver.clone().or_else(|| driver_name::of_plugins(&source.objects));
    let mut driver = told.clone().unwrap_or_else(|| driver_name::of_cluster(&source.objects));
    let kubernetes = source.kubernetes.unwrap_or_default();
    let mut published = Published::new(&driver, &source.objects, kubernetes);
    source.objects.slices.values().for_each(|slice| published.add(slice));
    let live: Option<Live> = match source.is_live {
        false => None,
        true => Some(block_on(async {
            let (client, _) = connect(&arguments.source.connection, None).await?;
            if told.is_none() {
                driver = driver_of_slices(&client).await?;
            }
            let new = || Published::new(&driver, &source.objects, kubernetes);
            let warnings;
            (published, warnings) =
                fold_slices(&client, new, |published, slice| published.add(&slice)).await?;
            warn(&warnings);
            Ok::<_, CommandError>(live(&client).await)
        })?),
    };
    if let Some(node) = &arguments.node
        && !source.objects.nodes.is_empty()
        && !source.objects.nodes.contains_key(&Key::cluster(node))
    {
        let known = source.objects.nodes.keys().map(|key| key.name.clone()).collect();
        let near = hints::nearest(node, &known).map(|near| format!(": did you mean {near}?"));
        let known = near.unwrap_or_else(|| "; `kubectl get nodes` lists them".to_owned());
        return Err(CommandError::Asked(format!("there is no node {node}{known}")));
    }
    let facts = Facts {
        objects: &source.objects,
        published: &published,
        pools: source.pools.as_ref(),
        live: live.as_ref(),
        driver: &driver,
        node: arguments.node.as_deref(),
        now: Timestamp::now(),
    };
    let found = findings(&facts);
    match arguments.output {
        Some(format) => output::structured(format, &found)?,
        None => output::print(&text(&found, Paint::standard_output()))?,
    }
    Ok(if found.is_empty() { Verdict::Yes } else { Verdict::No })
}

/// The driver's name if no plugin runs: taken from the devices of earlier plugins.
async fn driver_of_slices(client: &Client) -> Result<String, CommandError> {
    let (found, _) = fold_slices(client, OfSlices::default, |found, slice| found.add(&slice)).await?;
    Ok(found.chosen().unwrap_or_else(|| DEFAULT_DRIVER_NAME.to_owned()))
}

fn text(found: &[Finding], paint: Paint) -> String {
    if found.is_empty() {
        return "nothing is wrong\n".to_owned();
    }
    let mut text = String::new();
    for finding in found {
        let severity = match finding.severity {
            Severity::Error => paint.bad("error"),
            Severity::Warning => paint.hint("warning"),
        };
        let _ = writeln!(
            text,
            "{severity}: {}: {}",
            paint.bold(&printable(&finding.about)),
            printable(&finding.what)
        );
        let _ = writeln!(text, "  {}", printable(&finding.todo));
    }
    let errors = found.iter().filter(|finding| finding.severity == Severity::Error).count();
    let warnings = found.len() - errors;
    let _ =
        writeln!(text, "\n{}, {}", output::counted(errors, "error"), output::counted(warnings, "warning"));
    text
}
