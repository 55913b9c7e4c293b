//! The pods of a Workload, as its job will make them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tessera_api::gang::MAX_SIZE;
use tessera_cluster::gang::Rank;
use tessera_cluster::kueue::{PodSet, Workload};
use tessera_cluster::{Key, Objects};
use tessera_placement::demand::Demand;

use crate::group::{Member, SeatState};
use crate::state::State;
use crate::{nodes, selector_costs, tell};

/// Why the pods cannot be planned now.
pub(super) enum NoSeats {
    /// Their selectors are still evaluated.
    Unanswered,
    /// Somebody has to act first.
    Obstacle(String),
}

/// A pod of each PodSet, with labels and nodes as given by Kueue.
pub(super) fn pods<'w>(objects: &Objects, key: &Key, workload: &'w Workload) -> Vec<(&'w PodSet, Pod)> {
    let pod = |pod_set: &'w PodSet| {
        let metadata = pod_set.template.metadata.clone().unwrap_or_default();
        let mut spec = pod_set.template.spec.clone().unwrap_or_default();
        let selector = spec.node_selector.get_or_insert_default();
        let tolerations = spec.tolerations.get_or_insert_default();
        for flavor in assignment(workload, pod_set).flat_map(|assigned| assigned.flavors.values()) {
            let Some(flavor) = objects.flavors.get(&Key::cluster(flavor)) else { continue };
            selector.extend(flavor.node_labels.clone());
            tolerations.extend(flavor.tolerations.iter().cloned());
        }
        let updates = workload.status.admission_checks.iter();
        let updates = updates.flat_map(|check| check["podSetUpdates"].as_array().into_iter().flatten());
        for update in updates.filter(|update| update["name"] == pod_set.name.as_str()) {
            let of_check: BTreeMap<String, String> =
                serde_json::from_value(update["nodeSelector"].clone()).unwrap_or_default();
            selector.extend(of_check);
        }
        let pod = Pod {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                // Its owner's nodes, not another job's.
                uid: workload.metadata.uid.clone(),
                creation_timestamp: workload.metadata.creation_timestamp.clone(),
                ..metadata
            },
            spec: Some(PodSpec {
                priority: workload.spec.priority.or(spec.priority),
                scheduling_gates: None,
                node_name: None,
                ..spec
            }),
            status: None,
        };
        (pod_set, pod)
    };
    workload.spec.pod_sets.iter().map(pod).collect()
}

fn assignment<'w>(
    workload: &'w Workload,
    pod_set: &'w PodSet,
) -> impl Iterator<Item = &'w tessera_cluster::kueue::PodSetAssignment> {
    let all = workload.status.admission.pod_set_assignments.iter();
    all.filter(move |assigned| assigned.name == pod_set.name)
}

/// The pods with cards of managed pools. Others are not planned by this controller. The rank's job is the index of the PodSet.
pub(super) fn members(state: &mut State, key: &Key, workload: &Workload) -> Result<Vec<Member>, NoSeats> {
    let mut members = Vec::new();
    let pods = pods(state.world.cluster.objects(), key, workload);
    for (job, (pod_set, pod)) in (0..).zip(pods) {
        let demand = Demand::of(state.world.cluster.objects(), &pod)
            .map_err(|error| NoSeats::Obstacle(error.to_string()))?;
        if let Some(obstacle) = demand.obstacle() {
            return Err(NoSeats::Obstacle(obstacle.to_string()));
        }
        // Of a claim with a name of its own others may be the first users.
        let is_left = !demand.is_open()
            || demand.shared().next().is_some()
            || tell::unknown_scheduler(&state.config, &pod).is_some();
        if is_left {
            continue;
        }
        if selector_costs::unanswered(&mut state.world, &mut state.round, &demand).is_some() {
            return Err(NoSeats::Unanswered);
        }
        if nodes::ranked(&mut state.world, &demand).ranking.is_empty()
            && !nodes::ranked_others(&mut state.world, &demand).ranking.is_empty()
        {
            continue;
        }
        let count =
            assignment(workload, pod_set).find_map(|assigned| assigned.count).unwrap_or(pod_set.count);
        if count > MAX_SIZE {
            return Err(NoSeats::Obstacle(format!("{count} pods are more than {MAX_SIZE}")));
        }
        let pod = Arc::new(pod);
        members.extend((0..count).map(|number| {
            // Blanks, so that no pod has the name.
            let name = format!("{} {} {number}", key.name, pod_set.name);
            Member {
                key: key.with_name(&name),
                pod: pod.clone(),
                rank: Rank { job, pod: number, name },
                state: SeatState::Open,
                demand: Some(demand.clone()),
            }
        }));
    }
    Ok(members)
}
