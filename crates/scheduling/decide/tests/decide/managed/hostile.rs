//! Objects accepted by the API server, but not made in good faith.

use k8s_openapi::api::resource::v1::ResourceClaim;

use super::*;

fn shared_claim() -> serde_json::Value {
    let mut claim = claim("shared", "gpu", 1);
    claim["metadata"]["name"] = json!("shared");
    claim["metadata"]["resourceVersion"] = json!("5");
    claim["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
    claim["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    claim
}

/// A pod with claims of these names.
fn naming(name: &str, claims: &[&str]) -> serde_json::Value {
    let mut pod = ungated(name);
    let references = claims.iter().enumerate();
    let references: Vec<_> = references
        .map(|(place, claim)| json!({ "name": format!("c{place}"), "resourceClaimName": claim }))
        .collect();
    pod["spec"]["resourceClaims"] = json!(references);
    pod
}

#[test]
fn a_claim_that_a_pod_names_three_times_gets_devices_once() {
    let mut fed = leader(&[("a", 4)]);
    fed.apply_claim(shared_claim());
    fed.apply_pod(naming("p", &["shared"; 3]));
    let intents = fed.decide();
    let [Intent::Allocate { claims, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    assert_eq!(claims.len(), 1, "{claims:?}");
    let cluster = fed.decider.cluster();
    let taken = cluster.inventory().devices_of_node("a").filter(|device| cluster.held().holds_whole(*device));
    assert_eq!(taken.count(), 1);
}

fn unreadable(kind: Kind, name: &str, holds: Option<serde_json::Value>) -> Observation {
    let holds = holds.map(|claim| Box::new(read::<ResourceClaim>(claim)));
    Observation::Unreadable { kind, key: key(name), why: "nested too deeply".to_owned(), holds }
}

#[test]
fn a_pod_whose_claim_cannot_be_read_says_so_and_others_get_devices() {
    let mut fed = leader(&[("a", 2)]);
    fed.decider.observe(fed.now, unreadable(Kind::ResourceClaim, "shared", None)).unwrap();
    fed.apply_pod(naming("p", &["shared"]));
    fed.versioned("q", "gpu", 1, 6);
    fed.apply_pod(ungated("q"));
    let intents = fed.decide();
    assert!(
        matches!(intents.as_slice(), [Intent::Tell { message, .. }, Intent::Allocate { .. }]
        if message == "its ResourceClaim team/shared cannot be read, so that it counts as absent: nested too deeply"),
        "{intents:?}"
    );
    let waiting: Vec<_> = fed.decider.waiting().map(|(key, _)| key.name.as_str()).collect();
    assert!(waiting.contains(&"p"), "{waiting:?}");
    // A readable claim of the same name.
    fed.apply_claim(shared_claim());
    assert_eq!(fed.allocates().len(), 1);
}

#[test]
fn a_gated_pod_whose_template_cannot_be_read_says_so() {
    let mut fed = Fed::with_nodes(&[("a", 2)]);
    let mut waiting = pod("p");
    waiting["status"] = json!({ "phase": "Pending" });
    fed.apply_pod(waiting);
    assert!(
        matches!(fed.decide().as_slice(), [Intent::Tell { message, .. }] if message.contains("does not exist"))
    );
    fed.now += Time::from_secs(31);
    fed.decider.observe(fed.now, unreadable(Kind::ResourceClaimTemplate, "t", None)).unwrap();
    let intents = fed.decide();
    assert!(
        matches!(intents.as_slice(), [Intent::Tell { message, .. }]
        if message.starts_with("its ResourceClaimTemplate team/t cannot be read")),
        "{intents:?}"
    );
}

#[test]
fn what_a_claim_holds_that_cannot_be_read_counts_as_taken() {
    let mut fed = leader(&[("a", 1)]);
    let holds = allocated(shared_claim(), "a", &[card(0)]);
    fed.decider.observe(fed.now, unreadable(Kind::ResourceClaim, "shared", Some(holds))).unwrap();
    fed.versioned("q", "gpu", 1, 6);
    fed.apply_pod(ungated("q"));
    assert_eq!(fed.allocates(), []);
    fed.delete(Kind::ResourceClaim, "shared");
    assert_eq!(fed.allocates().len(), 1);
}

#[test]
fn a_pod_with_more_claims_than_are_looked_at_waits_with_words() {
    let mut fed = leader(&[("a", 2)]);
    let template = |selector: &str| {
        read::<k8s_openapi::api::resource::v1::ResourceClaimTemplate>(json!({
            "metadata": { "name": "t", "namespace": "team" }, "spec": { "spec": { "devices": { "requests": [
            { "name": "r", "exactly": { "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
                "selectors": [{ "cel": { "expression": selector } }] } }] } } } }))
    };
    let from_template = |count: usize| {
        let mut pod = ungated("p");
        let references: Vec<_> = (0..count)
            .map(|place| json!({ "name": format!("c{place}"), "resourceClaimTemplateName": "t" }))
            .collect();
        pod["spec"]["resourceClaims"] = json!(references);
        pod["status"] = json!({ "phase": "Pending" });
        pod
    };
    fed.apply(template("true").into());
    fed.apply_pod(from_template(1_500));
    let intents = fed.decide();
    assert!(
        matches!(intents.as_slice(), [Intent::Tell { message, .. }] if message.starts_with("it has 1500 ResourceClaims")),
        "{intents:?}"
    );
    // Few claims, each as large as the API server stores.
    fed.now += Time::from_secs(31);
    fed.apply(template(&"t".repeat(1 << 20)).into());
    fed.apply_pod(from_template(100));
    let intents = fed.decide();
    assert!(
        matches!(intents.as_slice(), [Intent::Tell { message, .. }] if message.contains("larger than 4 MiB")),
        "{intents:?}"
    );
    let subject =
        tessera_cluster::subject::of_pod(fed.decider.cluster().objects(), &read(from_template(100)));
    assert!(subject.claims.is_empty());
    fed.now += Time::from_secs(31);
    fed.apply(template("true").into());
    assert!(matches!(fed.decide().as_slice(), [Intent::Tell { .. }] | []), "its claims do not exist yet");
}

/// An allocation repeats the claim's configuration. A write too large for etcd is not retried endlessly.
#[test]
fn a_claim_that_could_not_be_stored_with_devices_gets_none_and_says_so() {
    let mut fed = leader(&[("a", 2)]);
    let with_config = |name: &str, bytes: usize| {
        let mut claim = claim(name, "gpu", 1);
        claim["metadata"]["resourceVersion"] = json!("5");
        claim["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
        claim["spec"]["devices"]["config"] = json!([{ "opaque": { "driver": "other.example.com", "parameters": { "text": "x".repeat(bytes) } } }]);
        claim
    };
    fed.apply_claim(with_config("large", 800_000));
    fed.apply_pod(ungated("large"));
    fed.apply_claim(with_config("small", 600_000));
    fed.apply_pod(ungated("small"));
    let intents = fed.decide();
    let [Intent::Tell { pod: told, message, .. }, Intent::Allocate { pod, .. }] = intents.as_slice() else {
        panic!("{intents:?}")
    };
    assert_eq!((told.key.name.as_str(), pod.key.name.as_str()), ("large", "small"));
    assert!(
        message.starts_with("its ResourceClaim team/large-gpus is too large to get devices: 15"),
        "{message}"
    );
}

#[test]
fn counts_that_no_number_holds_are_more_than_there_are() {
    let mut fed = leader(&[("a", 2)]);
    let mut claim = claim("p", "gpu", 1);
    let request = |name: &str| {
        json!({ "name": name, "exactly": { "deviceClassName": "gpu", "allocationMode": "ExactCount",
            "count": i64::MAX } })
    };
    claim["spec"]["devices"]["requests"] = json!([request("x"), request("y"), request("z")]);
    claim["metadata"]["resourceVersion"] = json!("5");
    claim["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
    fed.apply_claim(claim);
    fed.apply_pod(ungated("p"));
    assert_eq!(fed.allocates(), []);
}

/// A claim's owner may write and remove its annotations.
#[test]
fn devices_of_managed_cards_are_taken_back_whatever_stands_on_the_claim() {
    let mut fed = leader(&[("a", 1)]);
    let mut left = allocated(shared_claim(), "a", &[card(0)]);
    left["metadata"]["annotations"] = json!({});
    fed.apply_claim(left);
    let intents = fed.decide();
    assert!(
        matches!(intents.as_slice(), [Intent::Clear { claims, .. }] if claims[0].key == key("shared")),
        "{intents:?}"
    );
}

/// An in-place resize changes neither the node nor the phase of a pod.
#[test]
fn cpu_that_a_resize_sets_free_is_seen() {
    let mut fed = leader(&[("a", 2)]);
    let mut large = ungated("large");
    large["spec"]["nodeName"] = json!("a");
    large["spec"]["resourceClaims"] = json!([]);
    large["status"] = json!({ "phase": "Running" });
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("8");
    fed.apply_pod(large.clone());
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(ungated("p"));
    assert_eq!(fed.allocates(), []);
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
    fed.apply_pod(large);
    assert_eq!(fed.allocates().len(), 1);
}

/// The API server's clock is an hour ahead of ours.
#[test]
fn a_taint_of_the_future_is_as_old_as_it_was_seen() {
    let mut fed = leader(&[("a", 1)]);
    slices("a", 1, managed()).into_iter().for_each(|slice| fed.apply(dated(slice, 1_000 + 3_600)));
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(ungated("p"));
    fed.now += Time::from_secs(61);
    if fed.decide().contains(&Intent::ListClaims) {
        fed.listed();
    }
    assert_eq!(fed.allocates().len(), 1);
}
