//! The policy for configuration gives the same answers as Prepare.

mod written;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tessera_api::config::{API_VERSION, DeviceConfig, NVIDIA_DRIVER_NAME};
use tokio::time::Instant;

use crate::support::{LONG, cluster, template};

const DRIVER: &str = "configuration.example.com";

/// The policy alone, of a release for this driver in a namespace that need not exist.
struct Policy {
    manifests: String,
    client: Client,
    driver: &'static str,
}

impl Policy {
    async fn install(driver: &'static str, namespace: &str) -> Self {
        let only = ["--show-only=templates/configuration-policy.yaml", "--namespace", namespace];
        let manifests = template(&[&format!("driverName={driver:?}")], &only).await.expect("rendered");
        let cluster = cluster().await;
        cluster.kubectl_with_input(&["create", "--filename=-"], &manifests).await.expect("created");
        let policy = Self { manifests, client: cluster.client().await.expect("a client"), driver };
        // A new policy works after a moment.
        let begin = Instant::now();
        while policy.claim(&[json!({})]).await.is_ok() {
            assert!(begin.elapsed() < LONG, "the policy never works");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        policy
    }

    fn entry(&self, parameters: &Value) -> Value {
        json!({"opaque": {"driver": self.driver, "parameters": parameters}})
    }

    /// The API server's answer to a claim with these objects.
    async fn claim(&self, parameters: &[Value]) -> Result<ResourceClaim, String> {
        let config: Vec<Value> = parameters.iter().map(|parameters| self.entry(parameters)).collect();
        self.claim_with(json!({"requests": [request()], "config": config})).await
    }

    async fn claim_with(&self, devices: Value) -> Result<ResourceClaim, String> {
        let claim = json!({"metadata": {"generateName": "c-"}, "spec": {"devices": devices}});
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), "default");
        let claim = serde_json::from_value(claim).expect("a claim");
        claims.create(&tried(), &claim).await.map_err(|error| error.to_string())
    }

    async fn remove(self) {
        cluster()
            .await
            .kubectl_with_input(&["delete", "--filename=-"], &self.manifests)
            .await
            .expect("deleted");
    }
}

fn request() -> Value {
    json!({"name": "card", "exactly": {"deviceClassName": "any"}})
}

fn tried() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

/// Objects by chance, right and nearly right: refused where Prepare refuses them, with its words.
#[tokio::test]
async fn it_refuses_what_prepare_refuses_in_its_words() {
    for (driver, namespace, seed) in
        [(DRIVER, "configuration-own", 1), (NVIDIA_DRIVER_NAME, "configuration-nvidia", 2)]
    {
        let policy = Policy::install(driver, namespace).await;
        let mut random = fastrand::Rng::with_seed(seed);
        let objects: Vec<Value> = (0..600).map(|_| written::object(&mut random, driver)).collect();
        let tries = stream::iter(objects).map(async |object| {
            let answer = policy.claim(std::slice::from_ref(&object)).await;
            (object, answer)
        });
        let (mut right, mut reasons) = (0, std::collections::BTreeSet::new());
        let mut tries = tries.buffer_unordered(8);
        while let Some((object, answer)) = tries.next().await {
            match (DeviceConfig::decode(&object, driver), answer) {
                (Ok(_), Ok(_)) => right += 1,
                (Err(error), Err(refusal)) => {
                    let said = format!("denied request: spec.devices.config[0].opaque.parameters: {error}");
                    assert!(refusal.contains(&said), "{object}\nPrepare: {error}\npolicy: {refusal}");
                    reasons.insert(error.to_string());
                }
                (decoded, answer) => panic!("{object}\nPrepare: {decoded:?}\npolicy: {answer:?}"),
            }
        }
        drop(tries);
        assert!(right > 60, "{right} are right");
        assert!(reasons.len() > 60, "{reasons:#?}");
        policy.remove().await;
    }
}

/// In every object with configuration, at any place, and however much configuration there is.
#[tokio::test]
async fn it_finds_the_wrong_object_in_everything_that_has_some() {
    let policy = Policy::install("places.example.com", "configuration-places").await;
    let limits = json!({"activeThreadPercentage": 50, "pinnedDeviceMemoryLimit": "10Gi"});
    let right = json!({"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": {"strategy": "MPS", "mps": limits}});
    let wrong = json!({"apiVersion": API_VERSION, "kind": "GpuConfig", "shares": 1});
    let says = r#".opaque.parameters: GpuConfig: "shares" is not one of the fields sharing"#;

    let mut objects = vec![right.clone(); 32];
    policy.claim(&objects).await.expect("as many as there may be");
    objects[31] = wrong.clone();
    let refusal = policy.claim(&objects).await.expect_err("the last is wrong");
    assert!(refusal.contains(&format!("spec.devices.config[31]{says}")), "{refusal}");

    // Others' configuration is theirs, and most claims have none.
    let foreign = json!({"opaque": {"driver": "other.example.com", "parameters": {"shares": 1}}});
    let config = json!([foreign, policy.entry(&right)]);
    policy.claim_with(json!({"requests": [request()], "config": config})).await.expect("right");
    policy.claim_with(json!({"requests": [request()]})).await.expect("without configuration");
    policy.claim_with(json!({"requests": [request()], "config": []})).await.expect("empty");
    let config = json!([foreign, policy.entry(&wrong)]);
    let refusal = policy.claim_with(json!({"requests": [request()], "config": config})).await;
    assert!(refusal.expect_err("wrong").contains(&format!("spec.devices.config[1]{says}")));

    let templates: Api<ResourceClaimTemplate> = Api::namespaced(policy.client.clone(), "default");
    let template = |object: &Value| {
        let devices = json!({"requests": [request()], "config": [policy.entry(object)]});
        let template = json!({"metadata": {"name": "t"}, "spec": {"spec": {"devices": devices}}});
        serde_json::from_value(template).expect("a template")
    };
    templates.create(&tried(), &template(&right)).await.expect("right");
    let refusal = templates.create(&tried(), &template(&wrong)).await.expect_err("wrong").to_string();
    assert!(refusal.contains(&format!("spec.spec.devices.config[0]{says}")), "{refusal}");

    let classes: Api<DeviceClass> = Api::all(policy.client.clone());
    let class = |object: &Value| {
        let class = json!({"metadata": {"name": "places"}, "spec": {"config": [policy.entry(object)]}});
        serde_json::from_value::<DeviceClass>(class).expect("a class")
    };
    let made = classes.create(&PostParams::default(), &class(&right)).await.expect("right");
    let mut changed = class(&wrong);
    changed.metadata.resource_version = made.metadata.resource_version;
    let refusal = classes.replace("places", &tried(), &changed).await.expect_err("wrong").to_string();
    assert!(refusal.contains(&format!("spec.config[0]{says}")), "{refusal}");
    classes.delete("places", &DeleteParams::default()).await.expect("deleted");

    // Kubernetes' own rule, the basis of docs/security and the taint's policy: only marked namespaces look at devices in use.
    let mut looks = request();
    looks["exactly"]["adminAccess"] = json!(true);
    let refusal = policy.claim_with(json!({"requests": [looks]})).await.expect_err("no label");
    assert!(refusal.contains("resource.kubernetes.io/admin-access"), "{refusal}");
    policy.remove().await;
}

/// Claims for ConsumableShares of NVIDIA's driver, where no pool offers them.
#[tokio::test]
async fn it_refuses_shares_that_nobody_offers() {
    let policy = Policy::install("consumable.example.com", "configuration-shares").await;
    let asking = |class: &str, capacity: &str| json!({"name": "a", "deviceClassName": class, "capacity": {"requests": {capacity: "1"}}});
    let exactly = |class: &str, capacity: &str| {
        let mut exactly = asking(class, capacity);
        exactly.as_object_mut().expect("an object").remove("name");
        json!({"name": "card", "exactly": exactly})
    };
    let own = "consumable.example.com";
    for (request, refused) in [
        (exactly(own, "shares"), true),
        (exactly(&format!("mig.{own}"), &format!("{own}/shares")), true),
        (json!({"name": "card", "firstAvailable": [asking(own, "shares")]}), true),
        (
            json!({"name": "card", "firstAvailable": [asking(own, "shares"), {"name": "b", "deviceClassName": own}]}),
            false,
        ),
        (exactly(own, "memory"), false),
        (exactly("class.of-somebody.example.com", "shares"), false),
    ] {
        let answer = policy.claim_with(json!({"requests": [request]})).await;
        let said =
            answer.as_ref().err().is_some_and(|error| error.contains("offer.sharing.consumableShares"));
        assert_eq!((answer.is_err(), said), (refused, refused), "{request}: {answer:?}");
    }
    policy.remove().await;
    let values = ["sharing.consumableShares.enabled=true"];
    let only = ["--show-only=templates/configuration-policy.yaml"];
    let text = template(&values, &only).await.expect("rendered");
    assert!(!text.contains("capacity shares") && text.contains("variables.wrong"), "{text}");
}

/// The chart's files match the types.
#[test]
fn the_charts_expressions_are_up_to_date() {
    for (file, text) in [
        ("faults.cel", tessera_api::config::faults_expression()),
        ("shown.cel", tessera_api::config::shown_expression()),
    ] {
        let path = crate::support::path("charts/tessera/files/admission").join(file);
        let written = std::fs::read_to_string(path).expect("there");
        assert_eq!(written, text, "cargo xtask admission writes {file} anew");
    }
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let without = template(&["admissionPolicy.checkConfiguration=false"], &[]).await.expect("rendered");
    assert!(!without.contains("opaque.parameters"), "{without}");
}
