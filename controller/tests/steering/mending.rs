//! What went wrong in a managed pool: two claims on one card, and a card that cannot be prepared.

use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::device_status::{EVICTIONS_ANNOTATION, READY};
use tessera_fakes::poll;

use crate::instance::Instance;
use crate::managed::{allocation, claims, ungated};
use crate::steered::told;
use crate::{fleet, pods};

/// Its only device, as the API server has it.
fn device(claim: &ResourceClaim) -> Value {
    let devices = allocation(claim).and_then(|allocation| allocation.devices.as_ref());
    json!(devices.and_then(|devices| devices.results.as_ref()).expect("results")[0])
}

async fn patch(claims: &Api<ResourceClaim>, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    claims.patch_status(name, &PatchParams::default(), &patch).await.expect("the claim's status");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_claims_on_a_card_and_a_card_that_cannot_be_prepared() {
    let cluster = fleet::start_with(1, 2, "Managed").await;
    let instance = Instance::start(&cluster.kubeconfig(), "first");
    fleet::apply(&cluster, &[pods::deployment("service", 1, 1)]).await;
    pods::nodes_of_app(&cluster, "service", 1).await;
    let claims = claims(&cluster).await;
    let first = pods::of_app(&cluster, "service").await.remove(0);
    let of_pod = |name: String| {
        let claims = claims.clone();
        async move {
            let all = claims.list(&Default::default()).await.unwrap().items;
            all.into_iter().find(|claim| claim.owner_references().iter().any(|owner| owner.name == name))
        }
    };
    let claim = of_pod(first.name_any()).await.expect("the pod's claim");

    // Somebody with all rights gives the same card to another claim, whose pod cannot be placed.
    let named = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": { "name": "second", "namespace": "default" },
        "spec": { "devices": { "requests": [{ "name": "gpus", "exactly": { "deviceClassName": "gpu" } }] } },
    });
    fleet::apply(&cluster, &[named]).await;
    let mut user = ungated("user", 1);
    user["spec"]["resourceClaims"] = json!([{ "name": "gpus", "resourceClaimName": "second" }]);
    user["spec"]["nodeSelector"] = json!({ "no": "such-node" });
    cluster.create_pod(user).await.unwrap();
    patch(&claims, "second", json!({ "allocation": allocation(&claim) })).await;
    let note = told(&cluster, "user", "TakenBack").await;
    assert!(note.contains("of its claim default/second is also held by another claim"), "{note}");
    assert!(allocation(&claims.get("second").await.unwrap()).is_none());
    assert!(allocation(&claims.get(&claim.name_any()).await.unwrap()).is_some());

    // The plugin says that the card cannot be prepared, and does so for long enough.
    let bad = device(&claim);
    let condition = json!({ "type": READY, "status": "False", "reason": "ResetNeeded", "message": "the card needs a reset",
        "lastTransitionTime": Timestamp::now() });
    let failed = json!({ "driver": bad["driver"], "pool": bad["pool"], "device": bad["device"], "conditions": [condition] });
    patch(&claims, &claim.name_any(), json!({ "devices": [failed] })).await;
    let evicted = told(&cluster, &first.name_any(), "Evicted").await;
    assert!(evicted.contains("the card needs a reset"), "{evicted}");
    poll::until_async("another pod has the other card", async || {
        let Some(next) = pods::of_app(&cluster, "service").await.pop() else { return false };
        let noted = next.annotations().get(EVICTIONS_ANNOTATION).cloned();
        let Some(claim) = of_pod(next.name_any()).await else { return false };
        next.uid() != first.uid()
            && noted.as_deref() == Some("1")
            && allocation(&claim).is_some()
            && device(&claim)["device"] != bad["device"]
    })
    .await;
    instance.terminate();
}
