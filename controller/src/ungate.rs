//! `controller ungate`: removes the steering gate from pods when no controller is left to remove it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, GroupVersionKind, ListParams};
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use tessera_api::steering::GATE;
use tessera_cluster::PodExt;
use tessera_kube_util::error_text::with_causes;

use crate::carry_out::remove_gate;

/// API servers may apply deleted bindings for some seconds, so gated pods may appear after the first pass. Passes are repeated
/// until no pod has the gate.
const MOST_ROUNDS: u32 = 10;
const BETWEEN_ROUNDS: Duration = Duration::from_secs(3);

/// Deletes the bindings of the admission policy, so that no new pod gets the gate. Then removes the gate from every pod.
///
/// # Errors
/// The API server rejects a request. Removed gates stay removed, and another call continues. A pod that cannot be changed does not
/// keep others gated.
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
    let (mut lifted, mut refused) = (0, BTreeMap::new());
    for round in 0..MOST_ROUNDS {
        if round > 0 {
            tokio::time::sleep(BETWEEN_ROUNDS).await;
        }
        let before = lifted;
        let all: Api<Pod> = Api::all(client.clone());
        let mut page = ListParams::default().limit(500).fields("spec.nodeName=");
        loop {
            let pods = all.list(&page).await.context("cannot list pods")?;
            for pod in pods.items.iter().filter(|pod| pod.is_gated()) {
                let namespace = pod.namespace().unwrap_or_default();
                let name = pod.name_any();
                let own: Api<Pod> = Api::namespaced(client.clone(), &namespace);
                match remove_gate(&own, &name, pod.metadata.uid.as_deref(), None).await {
                    Ok(()) => {
                        lifted += 1;
                        refused.remove(&(namespace, name));
                    }
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                    // One pod rejected by an admission policy must not keep all others gated.
                    Err(error) => drop(refused.insert((namespace, name), with_causes(&error))),
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
    for ((namespace, name), error) in &refused {
        tracing::error!("cannot lift the gate of {namespace}/{name}: {error}");
    }
    let left = refused.len();
    anyhow::ensure!(
        left == 0,
        "{left} pods keep the gate {GATE}: run this again, or take it off by hand, once what refuses that is gone"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::extract::Path;
    use axum::http::StatusCode;
    use axum::routing::{get, patch};
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_pod_that_refuses_keeps_no_other_gated() {
        let lifted: Arc<Mutex<Vec<String>>> = Arc::default();
        let (listed, written) = (Arc::clone(&lifted), Arc::clone(&lifted));
        let list = async move || {
            let gates = |name: &str| {
                let is_lifted = listed.lock().unwrap().iter().any(|lifted| lifted == name);
                if is_lifted { json!([]) } else { json!([{ "name": GATE }]) }
            };
            let pod = |name: &str| {
                json!({ "metadata": { "name": name, "namespace": "n" },
                    "spec": { "containers": [], "schedulingGates": gates(name) } })
            };
            json!({ "metadata": {}, "items": [pod("a-refuses"), pod("b"), pod("c")] }).to_string()
        };
        let lift = async move |Path((_, name)): Path<(String, String)>| {
            if name == "a-refuses" {
                let status = json!({ "kind": "Status", "status": "Failure", "code": 422, "message": "a policy says no" });
                return (StatusCode::UNPROCESSABLE_ENTITY, status.to_string());
            }
            written.lock().unwrap().push(name);
            (StatusCode::OK, json!({ "metadata": {} }).to_string())
        };
        let router = Router::new()
            .route("/api/v1/pods", get(list))
            .route("/api/v1/namespaces/{namespace}/pods/{name}", patch(lift));
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", port.local_addr().unwrap()).parse().unwrap();
        let serving = tokio::spawn(axum::serve(port, router).into_future());
        let client = Client::try_from(kube::Config::new(url)).unwrap();
        let error = run(client, &[]).await.unwrap_err().to_string();
        assert!(error.starts_with("1 pods keep the gate"), "{error}");
        assert_eq!(*lifted.lock().unwrap(), ["b", "c"]);
        serving.abort();
    }
}
