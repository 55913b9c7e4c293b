use std::collections::BTreeMap;
use std::convert::Infallible;

use http::{Method, Request, Response};
use k8s_openapi::api::resource::v1::AllocationResult;
use kube::client::Body;
use serde_json::Value;
use tessera_cluster::Key;

use super::*;

mod guards;

/// An API server answering changes of claims and pods with the status code at the start of the object's name, else with success.
fn client() -> Client {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let path = request.uri().path();
        let place = if path.starts_with("/api/") { 6 } else { 7 };
        let name = path.split('/').nth(place).unwrap_or_default().to_owned();
        let code: u16 = name.split('-').next().and_then(|code| code.parse().ok()).unwrap_or(200);
        let answer: Value = match code {
            200 => json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": { "name": name, "namespace": "team", "resourceVersion": "9" }, "spec": {} }),
            _ => {
                json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": "Test",
                "message": format!("said {code}") })
            }
        };
        let code = if request.method() == Method::PATCH { code } else { 404 };
        let body = Body::from(answer.to_string().into_bytes());
        Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
    });
    Client::new(service, "default")
}

fn claim(name: &str) -> ClaimReference {
    let key = Key::new("team", name);
    ClaimReference { key, uid: format!("uid-{name}"), resource_version: "5".to_owned() }
}

/// The first `last` observations sent to the loop for the intent.
async fn told(intent: Intent, last: usize) -> Vec<Observation> {
    let (carried, mut told) = mpsc::unbounded_channel();
    let client = client();
    let events = Events::start(client.clone(), "test", "test");
    let (list_claims, _) = watch::channel(0);
    let writer = Writer::new(client, events, carried, Arc::new(|| true), Metrics::new(), list_claims);
    writer.start(intent);
    let mut all = Vec::new();
    while all.len() < last {
        all.push(told.recv().await.unwrap());
    }
    all
}

#[tokio::test]
async fn each_claim_has_its_own_answer() {
    let claims =
        ["422-large", "409-changed", "500-broken", "403-frozen", "404-gone", "good"].map(claim).to_vec();
    for intent in [
        Intent::Fence { claims: claims.clone(), epoch: "one".to_owned() },
        Intent::Clear { pod: None, claims: claims.clone(), why: String::new() },
    ] {
        let mut refused = BTreeMap::new();
        let mut written = BTreeMap::new();
        for observation in told(intent, claims.len()).await {
            match observation {
                Observation::ClaimRefused { claim, pod: None, why } => {
                    drop(refused.insert(claim.key.name, why))
                }
                Observation::ClaimsWritten { claims, is_done } => {
                    written.extend(claims.into_iter().map(|claim| (claim.name, is_done)));
                }
                other => panic!("{other:?}"),
            }
        }
        let of = |name: &str, why: &str| (name.to_owned(), why.to_owned());
        assert_eq!(refused, [of("422-large", "said 422"), of("403-frozen", "said 403")].into());
        let answers = [("409-changed", false), ("500-broken", false), ("404-gone", true), ("good", true)];
        assert_eq!(written, answers.map(|(name, is_done)| (name.to_owned(), is_done)).into());
    }
}

#[tokio::test]
async fn a_claim_that_refuses_devices_is_told_before_the_end() {
    let pod = PodReference { key: Key::new("team", "p"), uid: "uid-p".to_owned() };
    for (name, is_refused) in [("422-large", true), ("500-broken", false), ("409-changed", false)] {
        let claims = ["good", name]
            .map(|name| ClaimAllocation { claim: claim(name), allocation: AllocationResult::default() });
        let intent = Intent::Allocate {
            pod: pod.clone(),
            node: "a".to_owned(),
            claims: claims.to_vec(),
            epoch: "one".to_owned(),
            lifts_gate: true,
            formed: None,
            why: String::new(),
        };
        let observations = told(intent, 1 + usize::from(is_refused)).await;
        let Some((Observation::Carried { is_done: false, versions, .. }, before)) = observations.split_last()
        else {
            panic!("{observations:?}")
        };
        let good: (Key, String) = (claim("good").key, "9".to_owned());
        assert_eq!(*versions, [good]);
        let refused: Vec<&str> = before
            .iter()
            .map(|observation| match observation {
                Observation::ClaimRefused { claim, pod: Some(about), .. } if *about == pod => {
                    claim.key.name.as_str()
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(refused, [name].iter().filter(|_| is_refused).copied().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_pod_that_refuses_a_write_is_told_before_the_end() {
    for (name, is_refused) in
        [("422-large", true), ("403-frozen", true), ("500-broken", false), ("409-new", false)]
    {
        let pod = PodReference { key: Key::new("team", name), uid: "uid".to_owned() };
        let intents = [
            Intent::Release { pod: pod.clone(), why: String::new() },
            Intent::Steer { pod: pod.clone(), node: "a".to_owned(), why: String::new() },
        ];
        for intent in intents {
            let observations = told(intent, 1 + usize::from(is_refused)).await;
            let Some((Observation::Carried { is_done: false, .. }, before)) = observations.split_last()
            else {
                panic!("{observations:?}")
            };
            let refused: Vec<bool> = before
                .iter()
                .map(|observation| matches!(observation, Observation::PodRefused { pod: about, .. } if *about == pod))
                .collect();
            assert_eq!(refused, vec![true; usize::from(is_refused)]);
        }
    }
}
