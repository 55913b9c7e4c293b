//! Claims without use.

use k8s_openapi::api::{events::v1::Event, resource::v1::ResourceClaim};
use kube::{Api, api::ListParams};

use crate::stage::{Scene, cards, eventually, play};

/// The state and reason of a condition of the claim's devices.
fn condition(claim: &ResourceClaim, kind: &str) -> Option<(String, String)> {
    let devices = claim.status.as_ref()?.devices.iter().flatten();
    let mut conditions = devices.flat_map(|device| device.conditions.iter().flatten());
    let found = conditions.find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.reason.clone()))
}

impl Scene {
    async fn condition(&self, pod: &str, kind: &str) -> Option<(String, String)> {
        let claim = self.claim_of(pod).await;
        condition(&self.claims().await.get(&claim).await.unwrap(), kind)
    }

    async fn until_condition(&self, pod: &str, kind: &str, reason: &str) {
        eventually(&format!("{kind} of {pod} by {reason}"), async || {
            let (status, why) = self.condition(pod, kind).await?;
            (status == "True" && why == reason).then_some(())
        })
        .await;
    }

    /// What an Event of the pod with this reason says.
    async fn told(&self, pod: &str, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.stage.client().await, &self.namespace);
        let of_pod = ListParams::default().fields(&format!("reason={reason},regarding.name={pod}"));
        eventually(&format!("an Event {reason} of {pod}"), async || {
            events.list(&of_pod).await.unwrap().items.pop()?.note
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_computes_nothing_is_told_and_one_that_does_is_not() {
    play("a_pod_that_computes_nothing_is_told_and_one_that_does_is_not", async |scene| {
        scene.template("card", &[cards("card", 1)]).await;
        scene.program_from_template("idle", "card", &["--allocate-mib", "1000", "--hold"]).await;
        scene
            .program_from_template("busy", "card", &["--allocate-mib", "1000", "--busy", "60", "--hold"])
            .await;
        for pod in ["idle", "busy"] {
            scene.ready(pod).await;
        }
        scene.until_condition("idle", "Idle", "BelowLimit").await;
        let said = scene.told("idle", "Idle").await;
        assert!(said.contains("below 5% of its multiprocessors"), "{said}");
        let busy = scene.condition("busy", "Idle").await;
        assert!(busy.is_none_or(|(status, _)| status == "False"));
        scene.delete_pods(&["idle", "busy"]).await;
    })
    .await;
}
