//! `controller ungate`: lifts the steering gate from pods when no controller will do it any more.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, GroupVersionKind, ListParams};
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use tessera_api::steering::GATE;

use crate::carry_out::remove_gate;

/// API servers may use the bindings for some seconds more, so pods may come with the gate after the first look: it is
/// looked again until none has it.
const MOST_ROUNDS: u32 = 10;
const BETWEEN_ROUNDS: Duration = Duration::from_secs(3);

/// Deletes the bindings of the admission policy, so that no new pod gets the gate, then lifts it from every pod.
///
/// # Errors
/// The API server refuses something; what was lifted stays so, and calling it again goes on.
pub async fn run(client: Client, bindings: &[String]) -> anyhow::Result<()> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding");
    let kind = ApiResource::from_gvk(&kind);
    let policies: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    for name in bindings {
        match policies.delete(name, &DeleteParams::default()).await {
            Ok(_) => println!("deleted the binding {name}: no new pod gets the gate"),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).with_context(|| format!("cannot delete the binding {name}")),
        }
    }
    let mut lifted = 0;
    for round in 0..MOST_ROUNDS {
        if round > 0 {
            tokio::time::sleep(BETWEEN_ROUNDS).await;
        }
        let before = lifted;
        let all: Api<Pod> = Api::all(client.clone());
        let mut page = ListParams::default().limit(500).fields("spec.nodeName=");
        loop {
            let pods = all.list(&page).await.context("cannot list pods")?;
            for pod in pods.items.iter().filter(|pod| has_gate(pod)) {
                let namespace = pod.namespace().unwrap_or_default();
                let name = pod.name_any();
                let own: Api<Pod> = Api::namespaced(client.clone(), &namespace);
                match remove_gate(&own, &name, pod.metadata.uid.as_deref()).await {
                    Ok(()) => lifted += 1,
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                    Err(error) => {
                        return Err(error)
                            .with_context(|| format!("cannot lift the gate of {namespace}/{name}"));
                    }
                }
            }
            match pods.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
        if round > 0 && lifted == before {
            break;
        }
    }
    println!("lifted the gate {GATE} from {lifted} pods");
    Ok(())
}

fn has_gate(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == GATE)
}
