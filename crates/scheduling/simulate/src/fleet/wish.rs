//! Free room: how many more pods of a kind would fit, one kind at a time.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimStatus};
use tessera_allocator::claim::Claim;
use tessera_api::gpu_pool::Allocation;
use tessera_cluster::{Asker, Cluster, Key, Kind, Objects, PodExt, node_fit};

use super::workload::Ask;
use super::{Fleet, Pods};

/// A kind of pod to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The wish as written.
    pub text: String,
    ask: Ask,
}

/// An invalid wish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a wish; write 4xgpu for four whole cards, 1g.10gb for a MIG partition, 15% for a share of a card"
)]
pub struct WishError(String);

impl FromStr for Wish {
    type Err = WishError;

    fn from_str(text: &str) -> Result<Self, WishError> {
        let error = || WishError(text.to_owned());
        let asked = match text.split_once('x') {
            Some((count, "gpu")) if count.parse::<u32>().is_ok() => count,
            _ if text == "gpu" => "1",
            _ if text.parse::<u32>().is_ok() => return Err(error()),
            _ => text,
        };
        Ok(Wish { text: text.to_owned(), ask: Ask::read(asked).map_err(|_| error())? })
    }
}

/// How many more pods of each wish would fit beside the holdings in these objects.
pub(super) fn fitting(fleet: &Fleet, objects: &Objects, wishes: &[Wish]) -> Vec<usize> {
    if wishes.is_empty() {
        return Vec::new();
    }
    let mut cluster = Cluster::default();
    let mut used: Vec<bool> = vec![false; fleet.nodes().len()];
    for object in fleet.objects(Allocation::Native) {
        // The objects are the plugin's own, so their quantities are valid.
        let _ = cluster.apply(object);
    }
    for claim in objects.claims.values() {
        let _ = cluster.apply(claim.as_ref().clone());
    }
    for pod in objects.pods.values() {
        let node = pod.node_name();
        if let Some(index) = node.and_then(|node| fleet.index(node)) {
            used[index] = true;
            let _ = cluster.apply(pod.as_ref().clone());
        }
    }
    let mut asker = fleet.asker();
    wishes.iter().map(|wish| more(fleet, &mut cluster, &used, wish, &mut asker)).collect()
}

fn more(fleet: &Fleet, cluster: &mut Cluster, used: &[bool], wish: &Wish, asker: &mut Asker) -> usize {
    let shape = wish.ask.shape(fleet, None, (0, 0));
    let mut made = Vec::new();
    let mut total = 0;
    // Empty nodes of the same kind take the same number of pods.
    let mut of_kind: HashMap<*const super::NodeKind, usize> = HashMap::new();
    for (index, node) in fleet.nodes().iter().enumerate() {
        let kind = Arc::as_ptr(&node.kind);
        if let Some(known) = of_kind.get(&kind).filter(|_| !used[index]) {
            total += known;
            continue;
        }
        let object = node.object();
        let before = made.len();
        loop {
            let pod = Pods { name: format!("wish-{}", made.len()), ..Pods::default() };
            let mut bound = shape.pod_of(&pod, Default::default());
            if node_fit::refusal(&bound, &object).is_some() || cluster.shortage(&bound, &object).is_some() {
                break;
            }
            let mut claims = shape.claims_of(&pod);
            let asked: Vec<Claim> = claims.iter().filter_map(|claim| Claim::try_from(claim).ok()).collect();
            let Ok(Some(allocations)) = cluster.plan(&object, &asked, asker) else { break };
            for (claim, allocation) in claims.iter_mut().zip(allocations) {
                claim.status =
                    Some(ResourceClaimStatus { allocation: Some(allocation), ..Default::default() });
                let _ = cluster.apply(ResourceClaim::clone(claim));
            }
            bound.spec.get_or_insert_default().node_name = Some(node.name.clone());
            let _ = cluster.apply(bound.clone());
            made.push((Key::from(&bound.metadata), claims));
        }
        total += made.len() - before;
        if !used[index] {
            of_kind.insert(kind, made.len() - before);
        }
    }
    for (pod, claims) in made {
        cluster.delete(Kind::Pod, &pod);
        claims.iter().for_each(|claim| cluster.delete(Kind::ResourceClaim, &Key::from(&claim.metadata)));
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_fleet_has_room_for_what_the_data_sheet_says() {
        let fleet =
            Fleet::new(&["2xdgx-h100".parse().unwrap(), "1xdgx-a100,mig=on".parse().unwrap()]).unwrap();
        let wishes = ["gpu", "4xgpu", "3xgpu", "1g.10gb", "3g.40gb", "50%", "7g.40gb"]
            .map(|text| text.parse().unwrap());
        // 110 pods per node.
        assert_eq!(fitting(&fleet, &Objects::default(), &wishes), [16, 4, 4, 3 * 56, 48, 32, 0]);
    }

    #[test]
    fn no_wishes() {
        for text in ["", "4", "4xcards", "0xgpu", "33xgpu", "1g", "0%", "x"] {
            assert!(text.parse::<Wish>().is_err(), "{text}");
        }
    }
}
