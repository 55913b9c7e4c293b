//! Demands of waiting pods, computed once for each version of a pod and its claims.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_cluster::subject::{PodObstacle, asks_for_extended_resources};
use tessera_cluster::{Key, Kind, ObjectError, Objects};

use super::Demand;

/// Demands by pod.
#[derive(Debug, Default)]
pub(crate) struct Demands {
    of_pods: HashMap<Key, Known>,
    /// Number of entries at which those of pods that changed or ended are dropped.
    most: usize,
}

/// The demand of one version of a pod, with the versions of its claims.
#[derive(Debug)]
struct Known {
    pod: Arc<Pod>,
    claims: Vec<(Key, Arc<ResourceClaim>)>,
    demand: Demand,
}

/// Least number of entries for [`Demands::most`].
const FEW: usize = 256;

impl Demands {
    /// The demand of this pod.
    ///
    /// # Errors
    /// As [`Demand::of`].
    pub fn of(&mut self, objects: &Objects, pod: &Arc<Pod>) -> Result<Demand, ObjectError> {
        let key = Key::from(&pod.metadata);
        if let Some(known) = self.of_pods.get(&key).filter(|known| known.is_current(objects, pod)) {
            return Ok(known.demand.clone());
        }
        let demand = Demand::of(objects, pod)?;
        if let Some(claims) = claims_read(objects, pod, &demand) {
            self.make_room();
            self.of_pods.insert(key, Known { pod: Arc::clone(pod), claims, demand: demand.clone() });
        }
        Ok(demand)
    }

    /// Drops all demands, after a change of classes.
    pub fn clear(&mut self) {
        self.of_pods.clear();
    }

    fn make_room(&mut self) {
        if self.of_pods.len() < self.most.max(FEW) {
            return;
        }
        // Nothing else refers to a version that was replaced or deleted.
        self.of_pods.retain(|_, known| Arc::strong_count(&known.pod) > 1);
        self.most = 2 * self.of_pods.len();
    }
}

impl Known {
    fn is_current(&self, objects: &Objects, pod: &Arc<Pod>) -> bool {
        let is_same = |(key, claim): &(Key, Arc<ResourceClaim>)| {
            objects.claims.get(key).is_some_and(|now| Arc::ptr_eq(now, claim)) && is_readable(objects, key)
        };
        Arc::ptr_eq(&self.pod, pod) && self.claims.iter().all(is_same)
    }
}

fn is_readable(objects: &Objects, claim: &Key) -> bool {
    objects.unreadable.is_empty() || !objects.unreadable.contains_key(&(Kind::ResourceClaim, claim.clone()))
}

/// The claims on which the demand depends; `None` if it depends on more: on templates, nodes, or objects that are missing.
fn claims_read(objects: &Objects, pod: &Pod, demand: &Demand) -> Option<Vec<(Key, Arc<ResourceClaim>)>> {
    let is_gate = |obstacle: &PodObstacle| matches!(obstacle, PodObstacle::SchedulingGate(_));
    if !demand.subject.obstacles.iter().all(is_gate) || asks_for_extended_resources(pod) {
        return None;
    }
    let claim = |wanted: &tessera_cluster::subject::Wanted| {
        let key = Key::from(&wanted.claim.metadata);
        let claim = objects.claims.get(&key).filter(|_| wanted.made_from.is_none())?;
        Some((key, Arc::clone(claim)))
    };
    demand.subject.claims.iter().map(claim).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tessera_cluster::{Cluster, Object};

    use super::*;

    fn read<T: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn pod(name: &str, more: Value) -> Object {
        let mut pod = json!({ "metadata": { "name": name, "namespace": "n" }, "spec": { "containers": [],
            "resourceClaims": [{ "name": "c", "resourceClaimTemplateName": "t" }] } });
        pod.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        read::<Pod>(pod).into()
    }

    fn claim(count: usize) -> Object {
        let request = json!({ "name": "r", "exactly": { "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count } });
        let claim = json!({ "metadata": { "name": "c", "namespace": "n" }, "spec": { "devices": { "requests": [request] } } });
        read::<ResourceClaim>(claim).into()
    }

    fn made() -> Value {
        json!({ "status": { "resourceClaimStatuses": [{ "name": "c", "resourceClaimName": "c" }] } })
    }

    /// The demand of pod `p`, and whether it was computed before.
    fn ask(demands: &mut Demands, cluster: &Cluster) -> (usize, bool) {
        let key = Key::new("n", "p");
        let known = demands.of_pods.get(&key).map(|known| Arc::clone(&known.demand.subject));
        let pod = &cluster.objects().pods[&key];
        let demand = demands.of(cluster.objects(), pod).unwrap();
        (demand.devices(), known.is_some_and(|known| Arc::ptr_eq(&known, &demand.subject)))
    }

    #[test]
    fn a_demand_is_computed_once_for_each_version_of_pod_and_claim() {
        let (mut demands, mut cluster) = (Demands::default(), Cluster::default());
        cluster.apply(claim(2)).unwrap();
        cluster.apply(pod("p", made())).unwrap();
        assert_eq!(ask(&mut demands, &cluster), (2, false));
        assert_eq!(ask(&mut demands, &cluster), (2, true));
        cluster.apply(claim(3)).unwrap();
        assert_eq!(ask(&mut demands, &cluster), (3, false));
        cluster.apply(pod("p", made())).unwrap();
        assert_eq!(ask(&mut demands, &cluster), (3, false));
        assert_eq!(ask(&mut demands, &cluster), (3, true));
        cluster.mark_unreadable(Kind::ResourceClaim, Key::new("n", "c"), "why".to_owned());
        assert_eq!(ask(&mut demands, &cluster), (0, false), "an unreadable claim is absent");
    }

    #[test]
    fn a_demand_that_depends_on_a_template_is_computed_each_time() {
        let (mut demands, mut cluster) = (Demands::default(), Cluster::default());
        let template =
            json!({ "metadata": { "name": "t", "namespace": "n" }, "spec": { "spec": { "devices": {} } } });
        cluster.apply(read::<k8s_openapi::api::resource::v1::ResourceClaimTemplate>(template)).unwrap();
        cluster.apply(pod("p", json!({}))).unwrap();
        ask(&mut demands, &cluster);
        assert!(!ask(&mut demands, &cluster).1 && demands.of_pods.is_empty());
    }

    #[test]
    fn demands_of_pods_that_ended_are_dropped() {
        let (mut demands, mut cluster) = (Demands::default(), Cluster::default());
        cluster.apply(claim(1)).unwrap();
        for number in 0..2 * FEW {
            let name = format!("p{number}");
            let key = Key::new("n", name.as_str());
            cluster.apply(pod(&name, made())).unwrap();
            demands.of(cluster.objects(), &cluster.objects().pods[&key]).unwrap();
            cluster.delete(Kind::Pod, &key);
        }
        assert!(demands.of_pods.len() <= FEW, "{}", demands.of_pods.len());
    }
}
