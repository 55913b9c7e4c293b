//! Devices whose preparation fails on their node, from the claims of a pod not started yet.

use k8s_openapi::api::core::v1::Pod;
use tessera_api::device_status::READY;
use tessera_cluster::subject::Subject;

/// Devices whose preparation fails, since when and why, grouped by reason. Empty for a running pod.
pub fn of(subject: &Subject) -> Vec<String> {
    if subject.pod.as_ref().is_some_and(|pod| !is_pending(pod)) {
        return Vec::new();
    }
    let statuses = subject.claims.iter().filter_map(|wanted| wanted.claim.status.as_ref());
    let mut by_reason: Vec<(String, Vec<&str>)> = Vec::new();
    for device in statuses.flat_map(|status| status.devices.iter().flatten()) {
        let conditions = device.conditions.iter().flatten();
        let mut failed =
            conditions.filter(|condition| condition.type_ == READY && condition.status == "False");
        let Some(failed) = failed.next() else { continue };
        let since = failed.last_transition_time.0;
        let why = format!("cannot be prepared since {since} ({}): {}", failed.reason, failed.message);
        match by_reason.iter_mut().find(|(known, _)| *known == why) {
            Some((_, devices)) => devices.push(&device.device),
            None => by_reason.push((why, vec![&device.device])),
        }
    }
    by_reason.into_iter().map(|(why, devices)| format!("{} {why}", devices.join(", "))).collect()
}

fn is_pending(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.is_none_or(|phase| phase == "Pending")
}
