//! Pods that Kueue admitted: across its queues only Kueue preempts, and a job that Kueue admits again keeps its age.

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::{Key, Kind, Objects, PodExt, gang};

use crate::group::Group;
use crate::queue::Order;
use crate::world::World;

/// Label of an admitted job's pods with the name of their ClusterQueue (since Kueue 0.17, feature gate `AssignQueueLabelsForPods`).
const CLUSTER_QUEUE_LABEL: &str = "kueue.x-k8s.io/cluster-queue-name";

fn cluster_queue(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(CLUSTER_QUEUE_LABEL).map(String::as_str)
}

/// The group's ClusterQueue; `None` for pods that Kueue did not admit.
pub(crate) fn cluster_queue_of(group: &Group) -> Option<&str> {
    group.members.iter().find_map(|member| cluster_queue(&member.pod))
}

/// Whether these pods may go for a group of the ClusterQueue: they are of the same one, or of none.
pub(crate) fn may_go_for(world: &World, queue: Option<&str>, pods: &[Key]) -> bool {
    let all = &world.cluster.objects().pods;
    let may_go = |pod: &Key| {
        let other = all.get(pod).and_then(|pod| cluster_queue(pod));
        other.is_none() || other == queue
    };
    queue.is_none() || pods.iter().all(may_go)
}

/// The order by the age of the gang's Job or JobSet, whose pods Kueue deletes and lets be made anew. Once a pod is bound its own age counts.
pub(crate) fn with_age_of_owner<'p>(
    objects: &Objects,
    order: Order,
    mut pods: impl Iterator<Item = &'p Pod>,
) -> Order {
    let Some(first) = pods.next().filter(|pod| cluster_queue(pod).is_some()) else { return order };
    if first.node_name().is_some() || pods.any(|pod| pod.node_name().is_some()) {
        return order;
    }
    let metadata = gang::named_by(first).into_iter().find_map(|(kind, key)| match kind {
        Kind::JobSet => Some(&objects.job_sets.get(&key)?.metadata),
        Kind::Job => Some(&objects.jobs.get(&key)?.metadata),
        _ => None,
    });
    match metadata.and_then(|metadata| metadata.creation_timestamp.clone()) {
        Some(created) => order.with_place_of(created),
        None => order,
    }
}
