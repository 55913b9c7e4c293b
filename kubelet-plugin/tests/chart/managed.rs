//! Who may allocate claims, whose claims may tolerate the taint of managed cards, and who writes the controller's annotations.

mod allocations;
mod annotations;
mod tolerations;

use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    config::Kubeconfig,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    LONG, MANAGED_RELEASE, accepted, chart, cluster, connect, of_component, strings, template,
};

const DRIVER: &str = "managed.example.com";
/// Namespace and name of the release.
const RELEASE: &str = "managed";

/// The spec of a claim, with this as the request `card`.
fn claim_spec(request: Value) -> Value {
    json!({"devices": {"requests": [request]}})
}

fn one_card() -> Value {
    claim_spec(json!({"name": "card", "exactly": {"deviceClassName": DRIVER}}))
}

/// A claim of the release's namespace, or a template, to be created.
async fn create(
    client: &Client,
    kind: &str,
    spec: Value,
    is_tried: bool,
) -> Result<ResourceClaim, kube::Error> {
    let parameters = PostParams { dry_run: is_tried, ..PostParams::default() };
    let metadata = json!({"generateName": "m-"});
    let object = match kind {
        "ResourceClaim" => json!({"metadata": metadata, "spec": spec}),
        _ => json!({"metadata": metadata, "spec": {"spec": spec}}),
    };
    if kind == "ResourceClaim" {
        let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), RELEASE);
        return claims.create(&parameters, &serde_json::from_value(object).expect("a claim")).await;
    }
    let templates: Api<k8s_openapi::api::resource::v1::ResourceClaimTemplate> =
        Api::namespaced(client.clone(), RELEASE);
    let template = serde_json::from_value(object).expect("a template");
    templates.create(&parameters, &template).await.map(|_| ResourceClaim::default())
}

/// A client of a user of this name, who has no rights but those of [`may_do_everything_with_claims_and_pods`].
async fn user(name: &str) -> Client {
    member(name, &[]).await
}

/// A client of a user of this name, who is in these groups.
async fn member(name: &str, groups: &[&str]) -> Client {
    let mut config = Kubeconfig::read_from(cluster().await.kubeconfig()).expect("readable");
    for named in &mut config.auth_infos {
        let auth_info = named.auth_info.get_or_insert_default();
        auth_info.impersonate = Some(name.to_owned());
        auth_info.impersonate_groups = Some(groups.iter().map(|group| (*group).to_owned()).collect());
    }
    connect(config).await
}

async fn may_do_everything_with_claims_and_pods(user: &str) {
    let name = format!("claims-and-pods-of-{user}");
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods", "pods/status", "pods/ephemeralcontainers", "pods/resize"], "verbs": ["*"]}]});
    let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}]});
    for object in [role, binding] {
        cluster().await.apply(&object.to_string()).await.expect("made");
    }
}

/// The error's text, which must come from an admission policy and contain `says`.
fn refused<T>(result: Result<T, kube::Error>, what: &str, says: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{what} is admitted")).to_string();
    assert!(error.contains("ValidatingAdmissionPolicy") && error.contains(says), "{what}: {error}");
}

/// One test, since a release is cluster-wide.
#[tokio::test]
async fn the_policies_protect_what_the_controller_allocates() {
    let _only = MANAGED_RELEASE.lock().await;
    let cluster = cluster().await;
    let values = format!("driverName={DRIVER},crds.install=false,steering.enabled=false");
    let chart = chart();
    let install =
        ["install", RELEASE, &chart, "--namespace", RELEASE, "--create-namespace", "--set", &values];
    cluster.helm(&install).await.expect("installed");
    let label = "resource.kubernetes.io/admin-access=true";
    cluster.kubectl(&["label", "namespace", RELEASE, label]).await.expect("labelled");
    may_do_everything_with_claims_and_pods("alice").await;
    let administrator = cluster.client().await.expect("a client");

    // New policies work after a moment.
    let begin = Instant::now();
    let tolerating = tolerations::asking(json!([{"operator": "Exists"}]));
    while create(&administrator, "ResourceClaim", tolerating.clone(), true).await.is_ok()
        || allocations::foreign_is_admitted(&administrator).await
        || annotations::foreign_is_admitted(&administrator).await
    {
        assert!(begin.elapsed() < LONG, "the policies never work");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    allocations::only_scheduler_and_controller_allocate(&administrator).await;
    tolerations::nobody_tolerates_the_taint().await;
    annotations::only_the_controller_writes_them(&administrator).await;
    no_expression_is_doubtful().await;

    cluster
        .helm(&["uninstall", RELEASE, "--no-hooks", "--namespace", RELEASE, "--wait"])
        .await
        .expect("uninstalled");
    let kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings";
    let left = ["get", kinds, "-l", &format!("app.kubernetes.io/instance={RELEASE}"), "-o", "name"];
    assert_eq!(cluster.kubectl(&left).await.expect("listed"), "", "nothing is left");
}

/// The warnings of the API server's type checker about the policies.
async fn no_expression_is_doubtful() {
    let begin = Instant::now();
    loop {
        let label = format!("app.kubernetes.io/instance={RELEASE}");
        let list = ["get", "validatingadmissionpolicies", "-l", &label, "-o", "json"];
        let list = cluster().await.kubectl(&list).await.expect("listed");
        let list: Value = serde_json::from_str(&list).expect("JSON");
        let policies = list["items"].as_array().expect("a list");
        assert_eq!(policies.len(), 6, "the two of slices and that of configuration, too");
        if policies.iter().all(|policy| policy["status"]["observedGeneration"] == json!(1)) {
            for policy in policies {
                assert_eq!(policy["status"]["typeChecking"]["expressionWarnings"], json!(null), "{policy:#}");
            }
            return;
        }
        assert!(begin.elapsed() < LONG, "not checked: {list:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Rights and policies come and go together.
#[tokio::test]
async fn without_managed_allocation_the_controller_may_not_allocate() {
    let rendered = async |values: &[&str], more: &[&str]| {
        let text = template(values, more).await.expect("rendered");
        let objects = of_component(&accepted(&text).await, "controller");
        let roles = objects.iter().filter(|object| object["kind"] == "ClusterRole");
        let rules = roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default());
        let writes =
            rules.filter(|rule| strings(&rule["resources"]).contains(&"resourceclaims/binding")).count();
        let policies = objects.iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicy").count();
        (writes, policies)
    };
    assert_eq!(rendered(&[], &[]).await, (1, 3));
    assert_eq!(rendered(&["managed.enabled=false"], &[]).await, (0, 0));
    assert_eq!(rendered(&["controller.enabled=false"], &[]).await, (0, 0));
    assert_eq!(rendered(&[], &["--kube-version", "1.35.2"]).await, (0, 0), "no taints of devices yet");
}

#[tokio::test]
async fn other_schedulers_can_be_admitted() {
    let value = r#"managed.schedulerUsers=["system:kube-scheduler", "system:serviceaccount:v:v"]"#;
    let policies =
        template(&[value], &["--show-only=templates/managed-policies.yaml"]).await.expect("rendered");
    let users = r#"["system:kube-scheduler","system:serviceaccount:v:v","system:serviceaccount:default:rendered-tessera-controller"]"#;
    assert!(policies.contains(&format!("request.userInfo.username in {users}")), "{policies}");
    for (value, says) in [
        ("managed.schedulerUsers=[]", "/managed/schedulerUsers"),
        ("managed.schedulerUser=\"a\"", "schedulerUser"),
        ("managed.enabled=\"yes\"", "/managed/enabled"),
    ] {
        let error = template(&[value], &[]).await.expect_err(value).to_string();
        assert!(error.contains(says), "{value}: {error}");
    }
}

/// Merges `change` into the status of a claim.
async fn change_status(client: &Client, name: &str, change: Value) -> Result<ResourceClaim, kube::Error> {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), RELEASE);
    claims.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": change}))).await
}
