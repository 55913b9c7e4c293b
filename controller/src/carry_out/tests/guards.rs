//! The precondition of each write, and when no write is made.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tessera_api::managed::RefusedNodes;

use super::*;

/// Patches sent to the API server for the intent, each with its path. After `allowed` writes the Lease is lost. Every object has
/// version 9 after a change.
async fn patches(intent: Intent, allowed: usize) -> Vec<(String, Value)> {
    let patches = Arc::new(Mutex::new(Vec::new()));
    let service = {
        let patches = Arc::clone(&patches);
        tower::service_fn(move |request: Request<Body>| {
            let patches = Arc::clone(&patches);
            async move {
                let path = request.uri().path().to_owned();
                if request.method() == Method::PATCH {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    patches.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap()));
                }
                let answer = json!({ "metadata": { "name": "c", "namespace": "team", "resourceVersion": "9" }, "spec": {} });
                Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        })
    };
    let client = Client::new(service, "default");
    let (carried, mut told) = mpsc::unbounded_channel();
    let events = Events::start(client.clone(), "test", "test");
    let left = AtomicUsize::new(allowed);
    let may_write =
        move || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
    let list_claims = watch::channel(0).0;
    let writer = Writer::new(client, events, carried, Arc::new(may_write), Metrics::new(), list_claims);
    writer.start(intent);
    drop(writer);
    // The outcome, or the end of an intent without one.
    told.recv().await;
    let patches = patches.lock().unwrap();
    patches.clone()
}

fn allocate() -> Intent {
    let claim = ClaimAllocation { claim: claim("c"), allocation: AllocationResult::default() };
    Intent::Allocate {
        pod: PodReference { key: Key::new("team", "p"), uid: "uid-p".to_owned() },
        node: "a".to_owned(),
        claims: vec![claim],
        epoch: "one".to_owned(),
        lifts_gate: true,
        formed: None,
        why: String::new(),
    }
}

fn last(path: &str) -> &str {
    path.split_once("/namespaces/team/").unwrap().1
}

/// kube-scheduler, or another leader, may have given the claim other devices since the decision.
#[tokio::test]
async fn each_write_to_a_claim_is_for_the_version_that_was_decided_on() {
    let claims = vec![claim("c")];
    for (intent, expected) in [
        (allocate(), vec![("resourceclaims/c", "5"), ("resourceclaims/c/status", "9")]),
        (Intent::Fence { claims: claims.clone(), epoch: "one".to_owned() }, vec![("resourceclaims/c", "5")]),
        (
            Intent::Clear { pod: None, claims: claims.clone(), why: String::new() },
            vec![("resourceclaims/c/status", "5")],
        ),
    ] {
        let patches = patches(intent, usize::MAX).await;
        let of_claims = patches.iter().filter(|(path, _)| path.contains("resourceclaims"));
        let versions: Vec<(&str, &str)> = of_claims
            .map(|(path, patch)| {
                assert_eq!(patch["metadata"]["uid"], "uid-c", "{patch}");
                (last(path), patch["metadata"]["resourceVersion"].as_str().unwrap_or_default())
            })
            .collect();
        assert_eq!(versions, expected);
    }
}

/// A new pod of the same name must not be changed.
#[tokio::test]
async fn each_write_to_a_pod_names_its_uid() {
    let patches = patches(allocate(), usize::MAX).await;
    let of_pods: Vec<_> = patches.iter().filter(|(path, _)| path.contains("/pods/")).collect();
    assert_eq!(of_pods.iter().map(|(path, _)| last(path)).collect::<Vec<_>>(), ["pods/p/status", "pods/p"]);
    assert!(of_pods.iter().all(|(_, patch)| patch["metadata"]["uid"] == "uid-p"), "{of_pods:?}");
}

#[tokio::test]
async fn nothing_is_written_any_more_once_the_lease_is_lost() {
    let all = ["resourceclaims/c", "resourceclaims/c/status", "pods/p/status", "pods/p"];
    for allowed in 0..=all.len() {
        let patches = patches(allocate(), allowed).await;
        assert_eq!(patches.iter().map(|(path, _)| last(path)).collect::<Vec<_>>(), all[..allowed]);
    }
    let fence = Intent::Fence { claims: ["c", "d"].map(claim).to_vec(), epoch: "one".to_owned() };
    assert_eq!(patches(fence, 0).await, []);
}

#[tokio::test]
async fn a_note_lowers_the_number_of_a_gang_and_names_an_evicted_pod_or_leaves_them() {
    for (formed, evicted) in [(Some(2), None), (None, Some("uid-q".to_owned()))] {
        let pod = PodReference { key: Key::new("team", "p"), uid: "uid-p".to_owned() };
        let intent = Intent::Note {
            pod,
            nodes: RefusedNodes::default(),
            evictions: 0,
            formed,
            idle_evicted: evicted.clone(),
        };
        let patches = patches(intent, 1).await;
        let annotations = &patches[0].1["metadata"]["annotations"];
        assert_eq!(annotations.get(FORMED_ANNOTATION), formed.map(|_| json!("2")).as_ref());
        assert_eq!(annotations.get(IDLE_EVICTED_ANNOTATION), evicted.map(|uid| json!(uid)).as_ref());
    }
}
