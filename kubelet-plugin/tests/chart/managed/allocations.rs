//! The policy of who writes allocations.

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tessera_api::managed::EPOCH_ANNOTATION;

use super::{
    DRIVER, RELEASE, change_status, create, may_do_everything_with_claims_and_pods, one_card, refused, user,
};
use crate::support::{cluster, connect};

/// An allocation as written by the controller.
fn allocation(drivers: &[&str]) -> Value {
    let results: Vec<Value> = drivers
        .iter()
        .enumerate()
        .map(|(index, driver)| {
            json!({"request": "card", "driver": driver, "pool": format!("{driver}/n"), "device": format!("gpu-{index}")})
        })
        .collect();
    json!({"allocation": {
        "devices": {"results": results}, "allocationTimestamp": "2026-11-23T00:00:00Z",
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}})
}

async fn claim(client: &Client) -> String {
    let claim = create(client, "ResourceClaim", one_card(), false).await.expect("created");
    claim.metadata.name.expect("a name")
}

/// Whether somebody who must not allocate can: the policy does not work yet.
pub async fn foreign_is_admitted(administrator: &Client) -> bool {
    let name = claim(administrator).await;
    change_status(administrator, &name, allocation(&[DRIVER])).await.is_ok()
}

pub async fn only_scheduler_and_controller_allocate(administrator: &Client) {
    let alice = user("alice").await;
    let name = claim(&alice).await;
    let says = "only the scheduler and Tessera's controller allocate devices of managed.example.com, not ";
    for (client, who) in [(&alice, "alice"), (administrator, "admin")] {
        let mut claim =
            Api::<ResourceClaim>::namespaced(client.clone(), RELEASE).get(&name).await.expect("there");
        let patched = change_status(client, &name, allocation(&[DRIVER])).await;
        refused(patched, who, &format!("{says}{who}"));
        claim.status = serde_json::from_value(allocation(&[DRIVER])).expect("a status");
        let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), RELEASE);
        refused(claims.replace_status(&name, &PostParams::default(), &claim).await, who, says);
        let applied = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "status": allocation(&[DRIVER])});
        let parameters = PatchParams::apply("test").force();
        refused(claims.patch_status(&name, &parameters, &Patch::Apply(&applied)).await, who, says);
        let mixed = change_status(client, &name, allocation(&["nic.example.com", DRIVER])).await;
        refused(mixed, "one device of ours among others", says);
    }
    // Other drivers' devices are none of our business.
    let of_another = claim(&alice).await;
    change_status(&alice, &of_another, allocation(&["nic.example.com"])).await.expect("admitted");

    // Nor is a claim for nothing.
    let empty = create(&alice, "ResourceClaim", json!({}), false).await.expect("created");
    let empty = empty.metadata.name.expect("a name");
    change_status(&alice, &empty, allocation(&[])).await.expect("admitted");

    let account = format!("{RELEASE}-tessera-controller");
    let controller = cluster().await.service_account_config(RELEASE, &account, None).await.expect("a token");
    let controller = connect(controller).await;
    may_do_everything_with_claims_and_pods("system:kube-scheduler").await;
    let scheduler = user("system:kube-scheduler").await;
    for (client, who) in [(&scheduler, "kube-scheduler"), (&controller, "the controller")] {
        let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), RELEASE);
        let finalizer = json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}});
        claims.patch(&name, &PatchParams::default(), &Patch::Merge(finalizer)).await.expect(who);
        change_status(client, &name, allocation(&[DRIVER])).await.expect(who);
        // Anyone with the right can reserve an allocated claim, as the resource claim controller does, and clear the reservation.
        let pod = json!([{"resource": "pods", "name": "p", "uid": format!("uid-{who}").replace(' ', "-")}]);
        change_status(&alice, &name, json!({"reservedFor": pod})).await.expect("reserved");
        let nothing = json!({"allocation": null, "reservedFor": null});
        let cleared = change_status(&alice, &name, nothing).await.expect("cleared");
        assert_eq!(cleared.status.and_then(|status| status.allocation), None);
    }
    // The controller marks the claims it may serve, and clears its own allocations.
    let claims: Api<ResourceClaim> = Api::namespaced(controller.clone(), RELEASE);
    let epoch = json!({"metadata": {"annotations": {EPOCH_ANNOTATION: "7"}}});
    claims.patch(&name, &PatchParams::default(), &Patch::Merge(epoch)).await.expect("marked");
    only_the_controller_marks(&alice, &name).await;
    change_status(&controller, &name, allocation(&[DRIVER])).await.expect("allocated");
    change_status(&controller, &name, json!({"allocation": null})).await.expect("cleared");
    // All other requests are denied.
    let deleted = claims.delete(&name, &kube::api::DeleteParams::default()).await.expect_err("no right");
    assert!(matches!(deleted, kube::Error::Api(status) if status.code == 403));
}

/// With the mark a tenant would take back or keep an allocation outside the tenant's control.
async fn only_the_controller_marks(alice: &Client, name: &str) {
    let claims: Api<ResourceClaim> = Api::namespaced(alice.clone(), RELEASE);
    let change = async |metadata: Value| {
        claims.patch(name, &PatchParams::default(), &Patch::Merge(json!({ "metadata": metadata }))).await
    };
    let says =
        "only Tessera's controller writes gpu.tessera.dev/controller-epoch on resourceclaims, not alice";
    for mark in [json!(null), json!("8")] {
        refused(change(json!({"annotations": {EPOCH_ANNOTATION: mark}})).await, "another mark", says);
    }
    let of_nobody = json!({"metadata": {"annotations": {EPOCH_ANNOTATION: null}}, "status": {}});
    let answer = claims.patch_status(name, &PatchParams::default(), &Patch::Merge(of_nobody)).await;
    let kept = answer.expect("nothing is changed").metadata.annotations;
    assert_eq!(kept.expect("annotations")[EPOCH_ANNOTATION], "7", "by the status");
    let marked = json!({"metadata": {"generateName": "marked-", "annotations": {EPOCH_ANNOTATION: "8"}},
        "spec": {"devices": {}}});
    let marked: ResourceClaim = serde_json::from_value(marked).expect("a claim");
    refused(claims.create(&PostParams::default(), &marked).await, "a new one", says);
    change(json!({"labels": {"a": "b"}, "annotations": {"example.com/of": "alice"}})).await.expect("changed");
}
