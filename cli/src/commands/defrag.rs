//! `kubectl gpu defrag`: the pods to move so that another fits.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tessera_api::{ProfileSpelling, attribute};
use tessera_cluster::subject::{Subject, of_pod};
use tessera_cluster::{Objects, PodExt};

use super::queue::time;
use crate::api_server;
use crate::arguments::DefragArguments;
use crate::defrag::{Answer, Place, World};
use crate::driver_name;
use crate::output::{self, CommandError, Paint, Verdict, counted, or_dash, printable};
use crate::share_ids::asker;
use crate::source::Source;
use crate::subject;

/// Runs the command.
///
/// # Errors
/// The objects could not be read, or nothing is wanted.
pub fn run(arguments: &DefragArguments) -> Result<Verdict, CommandError> {
    let source = Source::load(&arguments.source, api_server::Wanted::Moves)?;
    let asker = asker(source.release(&arguments.release));
    let Source { objects, namespace, is_live, .. } = source;
    let driver = arguments.driver.clone().unwrap_or_else(|| driver_name::of_fleet(&objects));
    let now = if is_live { Timestamp::now() } else { latest(&objects) };
    let mut world = World::new(objects, &driver, asker, now)?;
    let answers = match (&arguments.pod, arguments.cards, &arguments.profile) {
        (Some(name), ..) => {
            let subject = subject::named(world.objects(), name, &namespace)?;
            vec![for_pod(&mut world, &subject)?]
        }
        (_, Some(cards), _) => vec![world.for_devices(cards, None)?],
        (.., Some(profile)) => {
            ProfileSpelling::of_profile(profile)
                .map_err(|error| CommandError::Asked(format!("--profile: {error}")))?;
            is_published(world.objects(), &driver, profile)?;
            vec![world.for_devices(1, Some(profile))?]
        }
        _ if arguments.empty_node => vec![world.for_an_empty_node()],
        _ => for_waiting(&mut world)?,
    };
    match arguments.output {
        Some(format) => output::structured(format, &answers)?,
        None => {
            let paint = Paint::standard_output();
            let texts: Vec<String> = answers.iter().map(|answer| text(answer, paint)).collect();
            output::print(&texts.join("\n"))?;
        }
    }
    Ok(if answers.iter().all(|answer| answer.fits) { Verdict::Yes } else { Verdict::No })
}

/// # Errors
/// No device has the profile: a slip of the pen, or other models of cards.
fn is_published(objects: &Objects, driver: &str, profile: &str) -> Result<(), CommandError> {
    let slices = objects.slices.values().filter(|slice| slice.spec.driver == driver);
    let attributes = slices
        .flat_map(|slice| slice.spec.devices.iter().flatten())
        .filter_map(|device| device.attributes.as_ref()?.get(attribute::PROFILE)?.string.clone());
    let known: BTreeSet<String> = attributes.collect();
    if known.contains(profile) {
        return Ok(());
    }
    let known: Vec<String> = known.into_iter().collect();
    let known = if known.is_empty() { "no partitions".to_owned() } else { known.join(", ") };
    Err(CommandError::Asked(format!("no device has the profile {profile}; published: {known}")))
}

/// The latest time in the objects: files are as old as this.
fn latest(objects: &Objects) -> Timestamp {
    let conditions = objects.nodes.values().filter_map(|node| node.status.as_ref()?.conditions.as_ref());
    let heartbeats = conditions.flatten().filter_map(|condition| condition.last_heartbeat_time.as_ref());
    let pods = objects.pods.values();
    let of_pods = pods.flat_map(|pod| {
        let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        [started, pod.metadata.creation_timestamp.as_ref()].into_iter().flatten()
    });
    heartbeats.chain(of_pods).map(|time| time.0).max().unwrap_or_default()
}

fn for_pod(world: &mut World, subject: &Subject) -> Result<Answer, CommandError> {
    let Some(pod) = &subject.pod else {
        return Err(CommandError::Asked("--for takes a pod: write pod/NAME".to_owned()));
    };
    if let Some(node) = pod.node_name() {
        let title = subject::title(subject);
        return Err(CommandError::Asked(format!("{title} does not wait: it is on node {node}")));
    }
    let title = subject::title(subject);
    if let Some(obstacle) = subject::obstacles(world.objects(), subject).into_iter().next() {
        return Err(CommandError::Asked(format!("{title} cannot be placed: {obstacle}")));
    }
    world.for_pod(title, pod)
}

/// Each pod with claims that has no node, apart from those that cannot be placed at all.
fn for_waiting(world: &mut World) -> Result<Vec<Answer>, CommandError> {
    let is_waiting = |pod: &&Pod| pod.node_name().is_none() && !pod.has_ended();
    let waiting = world.objects().pods.values().map(AsRef::as_ref).filter(is_waiting);
    let subjects: Vec<Subject> = waiting
        .map(|pod| of_pod(world.objects(), pod))
        .filter(|subject| {
            !subject.claims.is_empty() && subject::obstacles(world.objects(), subject).is_empty()
        })
        .collect();
    if subjects.is_empty() {
        return Err(CommandError::Asked(
            "no pod waits for devices: say what should fit, with --cards, --profile or --empty-node"
                .to_owned(),
        ));
    }
    subjects.iter().map(|subject| for_pod(world, subject)).collect()
}

fn text(answer: &Answer, paint: Paint) -> String {
    let mut text = format!("{}: ", paint.bold(&printable(&answer.wanted)));
    match (&answer.place, answer.moves.len()) {
        (None, _) => {
            let why = answer.why.as_deref().unwrap_or_default();
            text += &format!("{}: {why}\n", paint.bad("does not fit"));
        }
        (Some(place), 0) => {
            text += &format!("{} on {} without moves{}\n", paint.good("fits"), place.node, given(place));
        }
        (Some(place), moves) => {
            let verdict = format!("fits on {} after {}", place.node, counted(moves, "move"));
            let lost = answer.lost_card_hours;
            text += &format!(
                "{}{}, for {lost:.2} card-hours of lost running time\n\n",
                paint.good(&verdict),
                given(place)
            );
            let rows = answer.moves.iter().map(|moved| {
                vec![
                    moved.pod.clone(),
                    devices(&moved.from),
                    devices(&moved.to),
                    or_dash(moved.runs_seconds.map(time)),
                    format!("{:.2}", moved.lost_card_hours),
                ]
            });
            text += &output::table(&["POD", "FROM", "TO", "RUNS", "LOST"], rows);
            if answer.likely_only {
                text += "\nkube-scheduler chooses places here: the moves are likely only, and a pod may come back to where it was\n";
            }
        }
    }
    if !answer.staying.is_empty() {
        text += &format!("\nin the way, and cannot move:\n{}", staying(answer));
    }
    text
}

fn staying(answer: &Answer) -> String {
    let rows = answer.staying.iter().map(|row| {
        let places: Vec<String> = row.places.iter().map(devices).collect();
        vec![or_dash(Some(row.pods.join(","))), places.join(" "), row.why.clone()]
    });
    output::table(&["POD", "HAS", "WHY"], rows)
}

/// `, with gpu-01-00`; nothing without devices.
fn given(place: &Place) -> String {
    if place.devices.is_empty() { String::new() } else { format!(", with {}", place.devices.join(", ")) }
}

/// `node-a/gpu-01-00,gpu-02-00`.
fn devices(place: &Place) -> String {
    format!("{}/{}", place.node, place.devices.join(","))
}
