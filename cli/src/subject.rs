//! Finds the object named on the command line, and names it in the output.

use std::collections::BTreeSet;

use tessera_api::steering::GATE;
use tessera_cluster::subject::{PodObstacle, Subject, of_claim, of_pod};
use tessera_cluster::{Key, Kind, Objects};

use crate::hints;
use crate::output::CommandError;

/// The object named by `pod/NAME` or `claim/NAME`.
///
/// # Errors
/// There is no such object.
pub fn named(objects: &Objects, name: &str, namespace: &str) -> Result<Subject, CommandError> {
    let Some((kind, name)) = name.split_once('/') else {
        return Err(CommandError::Asked(format!("{name:?} has no kind; write pod/{name} or claim/{name}")));
    };
    let key = Key::new(namespace, name);
    let missing = |kind: &str, known: Vec<&Key>| {
        let here =
            known.iter().filter(|key| key.namespace == namespace).map(|key| key.name.clone()).collect();
        let near = hints::nearest(name, &here).map(|near| format!(": did you mean {near}?"));
        let elsewhere = known
            .iter()
            .find(|key| key.name == name)
            .map(|key| format!("; there is one in namespace {} (use -n {})", key.namespace, key.namespace));
        CommandError::Asked(format!(
            "there is no {kind} {name} in namespace {namespace}{}",
            elsewhere.or(near).unwrap_or_default()
        ))
    };
    if kind.contains("claim")
        && let Some(why) = objects.unreadable.get(&(Kind::ResourceClaim, key.clone()))
    {
        return Err(CommandError::Asked(format!("the ResourceClaim {key} cannot be read: {why}")));
    }
    match kind {
        "pod" | "pods" | "po" => match objects.pods.get(&key) {
            Some(pod) => Ok(of_pod(objects, pod)),
            None => Err(missing("pod", objects.pods.keys().collect())),
        },
        "claim" | "claims" | "resourceclaim" | "resourceclaims" => match objects.claims.get(&key) {
            Some(claim) => Ok(of_claim(claim)),
            None => Err(missing("ResourceClaim", objects.claims.keys().collect())),
        },
        _ => Err(CommandError::Asked(format!("{kind:?} is not supported; write pod/{name} or claim/{name}"))),
    }
}

/// `pod/NAME` or `claim/NAME`.
pub fn title(subject: &Subject) -> String {
    let claim = subject.claims.first().and_then(|wanted| wanted.claim.metadata.name.as_deref());
    match &subject.pod {
        Some(pod) => format!("pod/{}", pod.metadata.name.as_deref().unwrap_or_default()),
        None => format!("claim/{}", claim.unwrap_or_default()),
    }
}

/// Whether the controller's gate is on the pod.
pub fn is_steered(subject: &Subject) -> bool {
    subject.obstacles.iter().any(is_steering)
}

/// Scheduling gates of others.
pub fn other_gates(subject: &Subject) -> Vec<String> {
    let others = subject.obstacles.iter().filter(|obstacle| !is_steering(obstacle));
    let gates = others.filter_map(|obstacle| match obstacle {
        PodObstacle::SchedulingGate(gate) => Some(gate.clone()),
        _ => None,
    });
    gates.collect()
}

fn is_steering(obstacle: &PodObstacle) -> bool {
    matches!(obstacle, PodObstacle::SchedulingGate(gate) if gate == GATE)
}

/// Reasons for waiting, independent of devices. The controller's gate is none: the controller removes its gate once there is a
/// place for the pod.
pub fn obstacles(objects: &Objects, subject: &Subject) -> Vec<String> {
    let said = subject.obstacles.iter().filter(|obstacle| !is_steering(obstacle)).map(|obstacle| {
        let PodObstacle::NoExtendedResource(resource) = obstacle else { return obstacle.to_string() };
        let specs = objects.classes.values().filter_map(|class| class.spec.as_ref());
        let known: BTreeSet<String> = specs.filter_map(|spec| spec.extended_resource_name.clone()).collect();
        let near = hints::nearest(resource, &known).map(|near| format!(": did you mean {near}?"));
        format!("{obstacle}{}", near.unwrap_or_default())
    });
    said.collect()
}
