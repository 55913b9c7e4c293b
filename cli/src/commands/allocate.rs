//! `kubectl gpu allocate`: kube-scheduler's allocation on each node, as a dry run.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;
use serde::Serialize;
use tessera_api::steering::GATE;
use tessera_cluster::Cluster;
use tessera_cluster::outcome::{self, NodeOutcome, Reason};
use tessera_cluster::subject::{Subject, Wanted, of_pod, waiting};

use crate::api_server;
use crate::arguments::AllocateArguments;
use crate::lines;
use crate::managed;
use crate::output::{self, CommandError, Paint, Verdict, printable};
use crate::share_ids::asker;
use crate::source::Source;
use crate::subject::{self, title};

/// Limit of nodes shown without `-v`.
const NODES_SHOWN: usize = 20;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    subject: String,
    fits: bool,
    obstacles: Vec<String>,
    /// Whether the controller's gate holds the pod back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gated: bool,
    /// Whether the pod or claim fits only through the controller, for whom managed cards are free.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    managed: bool,
    nodes: Vec<NodeOutcome>,
}

/// Runs the command.
///
/// # Errors
/// The objects could not be read, or there is no subject.
pub fn run(arguments: &AllocateArguments) -> Result<Verdict, CommandError> {
    if arguments.lines {
        let mut server = lines::allocate::Server::new(arguments.release.kubernetes.unwrap_or_default());
        lines::serve(std::io::stdin().lock(), std::io::stdout().lock(), &mut server)?;
        return Ok(Verdict::Yes);
    }
    let source = Source::load(&arguments.source, api_server::Wanted::All { volumes: false, pools: false })?;
    let mut asker = asker(source.release(&arguments.release));
    let Source { objects, namespace, given, .. } = source;
    let subjects = match &arguments.subject {
        Some(name) => vec![subject::named(&objects, name, &namespace)?],
        None => waiting(given.as_ref().unwrap_or(&objects))
            .into_iter()
            // Looked up again among all objects: a template may be in the cluster.
            .map(|subject| subject.pod.as_ref().map_or(subject.clone(), |pod| of_pod(&objects, pod)))
            .collect(),
    };
    if subjects.is_empty() {
        return Err(CommandError::Asked(
            "no pod or claim waits for devices; name a pod/NAME or claim/NAME, or give files with -f"
                .to_owned(),
        ));
    }
    let cluster = Cluster::of(objects)?;
    let mut reports = Vec::new();
    for subject in &subjects {
        let nodes = outcome::of_nodes(&cluster, subject, &mut asker)?;
        let obstacles = subject::obstacles(cluster.objects(), subject);
        let fits = obstacles.is_empty() && nodes.iter().any(|node| node.fits);
        let gated = subject::is_steered(subject);
        reports.push((
            subject,
            Report { subject: title(subject), fits, obstacles, gated, managed: false, nodes },
        ));
    }
    let waits = |(subject, report): &(&Subject, Report)| !report.fits && managed::may_serve(subject);
    if reports.iter().any(waits)
        && let Some(objects) = managed::of_controller(cluster.into_objects())
    {
        let cluster = Cluster::of(objects)?;
        for waiting in &mut reports {
            if waits(waiting) {
                let (subject, report) = waiting;
                let nodes = outcome::of_nodes(&cluster, subject, &mut asker)?;
                report.managed = nodes.iter().any(|node| node.fits);
                if report.managed {
                    report.fits = report.obstacles.is_empty();
                    report.nodes = nodes;
                }
            }
        }
    }
    let fits = reports.iter().all(|(_, report)| report.fits);
    if let Some(format) = arguments.output {
        let all: Vec<&Report> = reports.iter().map(|(_, report)| report).collect();
        output::structured(format, &all)?;
    } else {
        let paint = Paint::standard_output();
        let shown = if arguments.verbose { usize::MAX } else { NODES_SHOWN };
        let texts: Vec<String> =
            reports.iter().map(|(subject, report)| text(subject, report, shown, paint)).collect();
        output::print(&texts.join("\n"))?;
    }
    Ok(if fits { Verdict::Yes } else { Verdict::No })
}

fn text(subject: &Subject, report: &Report, shown: usize, paint: Paint) -> String {
    let fitting: Vec<&NodeOutcome> = report.nodes.iter().filter(|node| node.fits).collect();
    let mut text = paint.bold(&report.subject);
    let verdict = format!("fits on {} of {}", fitting.len(), output::counted(report.nodes.len(), "node"));
    text += ": ";
    text += &if fitting.is_empty() { paint.bad(&verdict) } else { paint.good(&verdict) };
    text.push('\n');
    for obstacle in &report.obstacles {
        text += &format!("{}\n", paint.bad(&printable(obstacle)));
    }
    if report.gated {
        text += &format!(
            "the gate {GATE} holds the pod back until the controller proposes a node (see kubectl gpu explain {})\n",
            report.subject
        );
    }
    if report.managed {
        text += "the controller allocates managed cards: it gives one of these, in queue order (docs/managed.md)\n";
    }
    if subject.claims.is_empty() && report.obstacles.is_empty() {
        text += "asks for no devices\n";
    } else if !subject.claims.is_empty() && subject.claims.iter().all(Wanted::is_allocated) {
        text += "all its claims already have devices; see `kubectl gpu explain` for the reasons\n";
    }
    let rows: Vec<Vec<String>> = fitting
        .iter()
        .take(shown)
        .flat_map(|node| {
            node.claims.iter().flat_map(|claim| {
                claim.results().iter().map(|result| {
                    vec![
                        node.node.clone(),
                        claim.claim.clone(),
                        result.request.clone(),
                        result.driver.clone(),
                        result.pool.clone(),
                        result.device.clone(),
                        consumes(result),
                    ]
                })
            })
        })
        .collect();
    if !rows.is_empty() {
        text.push('\n');
        text += &output::table(&["NODE", "CLAIM", "REQUEST", "DRIVER", "POOL", "DEVICE", "CONSUMES"], rows);
    }
    let served: Vec<&str> = fitting
        .iter()
        .filter(|node| node.claims.is_empty() && subject.claims.iter().any(|wanted| !wanted.is_allocated()))
        .map(|node| node.node.as_str())
        .collect();
    if !served.is_empty() {
        let resources: Vec<&str> =
            subject.claims.iter().flat_map(|wanted| &wanted.extended_resources).map(String::as_str).collect();
        text += &format!(
            "\nWithout a claim: a device plugin serves {} on\n  {}\n",
            printable(&resources.join(", ")),
            some_of(&served, shown.min(5))
        );
    }
    if fitting.len() > shown {
        text += &format!("… and {} more (-v shows all)\n", output::counted(fitting.len() - shown, "node"));
    }
    let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in &report.nodes {
        let reason = match &node.reason {
            None => continue,
            Some(Reason::Node(reason)) => reason.clone(),
            Some(Reason::Room(reason)) => format!("it has the devices, but {reason}"),
            Some(Reason::Devices(reason)) => {
                format!("{reason} (see kubectl gpu explain {})", report.subject)
            }
            Some(Reason::Error(error)) => format!("kube-scheduler fails with an error: {error}"),
        };
        reasons.entry(reason).or_default().push(&node.node);
    }
    if !reasons.is_empty() {
        text += "\nNot on\n";
    }
    for (reason, nodes) in reasons {
        text += &format!("  {}: {}\n", some_of(&nodes, shown.min(5)), paint.bad(&printable(&reason)));
    }
    text
}

/// The first names, and the number of the others.
pub fn some_of(names: &[&str], shown: usize) -> String {
    let mut text = names.iter().take(shown).copied().collect::<Vec<_>>().join(", ");
    if names.len() > shown {
        text += &format!(" and {} more", names.len() - shown);
    }
    text
}

/// Capacity consumed by a share of its device.
pub fn consumes(result: &DeviceRequestAllocationResult) -> String {
    let consumed = result.consumed_capacity.iter().flatten();
    let mut parts: Vec<String> = consumed.map(|(name, quantity)| format!("{name}={}", quantity.0)).collect();
    if result.admin_access == Some(true) {
        parts.push("nothing (admin access)".to_owned());
    }
    parts.join(",")
}
