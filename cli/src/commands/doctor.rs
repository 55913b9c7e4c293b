//! `kubectl gpu doctor`: what is wrong with Tessera in a cluster, and what to do.

use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;

use crate::api_server::{Wanted, block_on, connect, fold_slices, live};
use crate::arguments::DoctorArguments;
use crate::doctor::published::Published;
use crate::doctor::{Facts, Finding, Live, Severity, findings};
use crate::output::{self, CommandError, Paint, Verdict, printable, warn};
use crate::source::Source;

/// Runs the command.
///
/// # Errors
/// The objects could not be read, or there is no such node.
pub fn run(arguments: &DoctorArguments) -> Result<Verdict, CommandError> {
    let source = Source::load(&arguments.source, Wanted::Installation)?;
    let mut published = Published::new(&arguments.driver, &source.objects);
    source.objects.slices.values().for_each(|slice| published.add(slice));
    let live: Option<Live> = match source.is_live {
        false => None,
        true => Some(block_on(async {
            let (client, _) = connect(&arguments.source.connection, None).await?;
            let new = || Published::new(&arguments.driver, &source.objects);
            let warnings;
            (published, warnings) =
                fold_slices(&client, new, |published, slice| published.add(&slice)).await?;
            warn(&warnings);
            Ok::<_, CommandError>(live(&client).await)
        })?),
    };
    if let Some(node) = &arguments.node
        && !source.objects.nodes.is_empty()
        && !source.objects.nodes.contains_key(&(String::new(), node.clone()))
    {
        return Err(CommandError::Asked(format!("there is no node {node}")));
    }
    let facts = Facts {
        objects: &source.objects,
        published: &published,
        pools: source.pools.as_ref(),
        live: live.as_ref(),
        driver: &arguments.driver,
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
    let _ = writeln!(text, "\n{errors} errors, {} warnings", found.len() - errors);
    text
}
