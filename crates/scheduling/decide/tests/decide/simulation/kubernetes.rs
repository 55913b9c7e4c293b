//! Other components of a cluster: the resource claim controller, the disruption controller, kubelets, and the garbage collector.

use k8s_openapi::api::core::v1::{Pod, PodResourceClaimStatus};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use tessera_cluster::{Key, Kind, Object};
use tessera_decide::Time;

use super::api_server::{Server, Surroundings, has_ended, is_running, node_name};

/// One pass over all objects; each due change is made now or in a later pass. With a plan all changes are made at once, so a pass
/// without new changes is skipped; `seen` is the version of the last pass.
pub fn step(around: &mut Surroundings, server: &mut Server, seen: &mut u64) {
    let is_anybody_ending = || server.pods().any(|(_, pod)| pod.metadata.deletion_timestamp.is_some());
    let is_changed = std::mem::replace(seen, server.version) != server.version;
    if around.plan.is_some() && !is_changed && !is_anybody_ending() {
        return;
    }
    let all = |server: &Server, kind| server.of_kind(kind).cloned().collect::<Vec<_>>();
    for object in all(server, Kind::Pod) {
        let Object::Pod(pod) = object.as_ref() else { continue };
        let key = Key::from(&pod.metadata);
        make_claims(around, server, &key, pod);
        run(around, server, &key, pod);
    }
    for object in all(server, Kind::ResourceClaim) {
        let Object::ResourceClaim(claim) = object.as_ref() else { continue };
        free(around, server, &Key::from(&claim.metadata), claim);
    }
    allow_disruptions(around, server);
}

/// Annotation with the number of a disruption budget's pods that must run.
pub const LEAST_ANNOTATION: &str = "least";

/// Label of pods covered by the disruption budget.
pub const KEPT_LABEL: &str = "kept";

/// Whether the disruption budget, if any, covers the pod.
pub fn is_kept(pod: &Pod) -> bool {
    has_label(pod, KEPT_LABEL)
}

/// The disruption controller: counts running pods.
fn allow_disruptions(around: &mut Surroundings, server: &mut Server) {
    let budgets: Vec<_> = server.of_kind(Kind::DisruptionBudget).cloned().collect();
    for object in budgets {
        let Object::DisruptionBudget(budget) = object.as_ref() else { continue };
        let least = budget.metadata.annotations.as_ref().and_then(|all| all.get(LEAST_ANNOTATION));
        let least: u32 = least.and_then(|least| least.parse().ok()).expect("it was made so");
        let healthy = server.pods().filter(|(_, pod)| is_running(pod) && is_kept(pod)).count();
        let allowed = u32::try_from(healthy).expect("few pods").saturating_sub(least);
        if allowed != budget.status.disruptions_allowed && around.percent(40) {
            let mut budget = budget.clone();
            budget.status.disruptions_allowed = allowed;
            server.apply(around, budget);
        }
    }
}

/// Creates the claims of templates, then writes all their names to the pod's status. Each step is one write.
fn make_claims(around: &mut Surroundings, server: &mut Server, key: &Key, pod: &Pod) {
    let asked = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let asked: Vec<(&String, &String)> =
        asked.filter_map(|asked| Some((&asked.name, asked.resource_claim_template_name.as_ref()?))).collect();
    let is_told = pod.status.as_ref().is_some_and(|status| status.resource_claim_statuses.is_some());
    if asked.is_empty() || is_told || has_ended(pod) || !around.percent(40) {
        return;
    }
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let mut statuses = Vec::new();
    for (asked, template) in asked {
        let name = Key::new(key.namespace.clone(), format!("{}-{asked}-{uid}", key.name));
        if server.claim(&name).is_none() {
            return make_claim(around, server, (key, &uid), name, template);
        }
        statuses.push(PodResourceClaimStatus {
            name: asked.clone(),
            resource_claim_name: Some(name.name.clone()),
        });
    }
    server.update_pod(around, key, |pod| {
        pod.status.get_or_insert_default().resource_claim_statuses = Some(statuses);
    });
}

fn make_claim(
    around: &mut Surroundings,
    server: &mut Server,
    owner: (&Key, &str),
    name: Key,
    template: &str,
) {
    let (owner, owner_uid) = owner;
    let template = Key::new(owner.namespace.clone(), template);
    let Some(template) = server.get(Kind::ResourceClaimTemplate, &template) else { return };
    let Object::ResourceClaimTemplate(template) = template.as_ref() else { return };
    let claim = ResourceClaim {
        metadata: ObjectMeta {
            uid: Some(format!("uid-of-{}", name.name)),
            namespace: Some(name.namespace),
            name: Some(name.name),
            owner_references: Some(vec![OwnerReference {
                kind: "Pod".to_owned(),
                name: owner.name.clone(),
                uid: owner_uid.to_owned(),
                controller: Some(true),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: template.spec.as_ref().and_then(|spec| spec.spec.clone()),
        status: None,
    };
    server.apply(around, claim);
}

/// Label of pods using their full grace period; other pods end as soon as told.
pub const TAKES_ITS_GRACE: &str = "takes-its-grace";
/// Label of pods that never start.
pub const DOES_NOT_START: &str = "does-not-start";

pub fn has_label(pod: &Pod, label: &str) -> bool {
    pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(label))
}

pub fn seconds(time: Time) -> i64 {
    i64::try_from(time.as_secs()).expect("virtual time is short")
}

pub fn timestamp(second: i64) -> meta::v1::Time {
    meta::v1::Time(Timestamp::from_second(second).expect("virtual time is short"))
}

/// Deletes or evicts the pod; a bound pod terminates first.
pub fn delete_pod(around: &mut Surroundings, server: &mut Server, key: &Key) {
    if server.pod(key).is_none_or(|pod| node_name(pod).is_none() || has_ended(pod)) {
        return server.delete(around, Kind::Pod, key);
    }
    let now = seconds(around.now);
    server.update_pod(around, key, |pod| {
        let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        pod.metadata.deletion_timestamp.get_or_insert(timestamp(now + grace.unwrap_or(30)));
    });
}

/// The kubelet: pods start, jobs end, deleted pods stop. Pods on deleted nodes are removed, too.
fn run(around: &mut Surroundings, server: &mut Server, key: &Key, pod: &Pod) {
    let Some(node) = node_name(pod) else { return };
    let is_orphan = server.get(Kind::Node, &Key::cluster(node.to_owned())).is_none();
    let end = pod.metadata.deletion_timestamp.as_ref().map(|end| end.0.as_second());
    if end.is_some() || is_orphan {
        let takes_all_of_it = has_label(pod, TAKES_ITS_GRACE) && !is_orphan;
        let is_over = end.is_none_or(|end| end <= seconds(around.now));
        if (is_over || !takes_all_of_it) && around.percent(20) {
            around.note(|| format!("{} is gone", key.name));
            server.delete(around, Kind::Pod, key);
        }
        return;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase == Some("Running") && ends(pod).is_some_and(|end| end <= around.now) {
        around.note(|| format!("{} has run for long enough", key.name));
        server.update_pod(around, key, |pod| {
            pod.status.get_or_insert_default().phase = Some("Failed".to_owned());
        });
        return;
    }
    let is_job = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("job"));
    let next = match phase {
        Some("Pending") if !has_label(pod, DOES_NOT_START) && around.percent(30) => "Running",
        Some("Running") if is_job && around.percent(1) => "Succeeded",
        _ => return,
    };
    let now = timestamp(seconds(around.now));
    server.update_pod(around, key, |pod| {
        let status = pod.status.get_or_insert_default();
        status.phase = Some(next.to_owned());
        status.start_time.get_or_insert(now);
    });
}

/// When the running pod exceeds its `activeDeadlineSeconds`.
pub fn ends(pod: &Pod) -> Option<Time> {
    let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
    let started = pod.status.as_ref()?.start_time.as_ref()?.0.as_second();
    Some(Time::from_secs(u64::try_from(started + seconds).ok()?))
}

/// Removes consumers that are gone or done, frees the devices of the last one, and deletes the pod's own claim.
fn free(around: &mut Surroundings, server: &mut Server, key: &Key, claim: &ResourceClaim) {
    if !around.percent(40) {
        return;
    }
    let uses = |server: &Server, name: &str, uid: &str| {
        let pod = server.pod(&Key::new(key.namespace.clone(), name));
        pod.is_some_and(|pod| pod.metadata.uid.as_deref() == Some(uid) && !has_ended(pod))
    };
    let owner = claim.metadata.owner_references.iter().flatten().next();
    if let Some(owner) = owner
        && !uses(server, &owner.name, &owner.uid)
    {
        // Devices first, as the finalizer demands.
        if claim.status.as_ref().is_some_and(|status| status.allocation.is_some()) {
            server.update_claim(around, key, |claim| claim.status = None);
        } else {
            server.delete(around, Kind::ResourceClaim, key);
        }
        return;
    }
    let users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    let is_done = |name: &str, uid: &str| !uses(server, name, uid);
    let done: Vec<String> =
        users.filter(|user| is_done(&user.name, &user.uid)).map(|user| user.uid.clone()).collect();
    if done.is_empty() {
        return;
    }
    server.update_claim(around, key, |claim| {
        let status = claim.status.get_or_insert_default();
        status.reserved_for.iter_mut().for_each(|users| users.retain(|user| !done.contains(&user.uid)));
        if status.reserved_for.iter().flatten().next().is_none() {
            claim.status = None;
        }
    });
}
