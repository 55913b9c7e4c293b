//! Rights not certain to be used by an audited story (tests/end-to-end: `health`, `steering`): each is taken away, and its
//! purpose fails.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate};
use kube::api::{EvictParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::support::{LONG, MANAGED_RELEASE, chart, cluster, connect};

const RELEASE: &str = "rights";
const DRIVER: &str = "rights.example.com";
/// Of the extended resource `example.com/card`.
const CLASS: &str = "example.com-card.rights.example.com";

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// An action of the controller that needs a right; none leaves a trace.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Evicts,
    Allocates,
    Tells,
    TellsAgain,
    AsksWhoItIs,
    AsksWhatHeMay,
    Reminds,
    SumsUp,
    MakesTemplates,
    DeletesTemplates,
    /// A kind missing in some clusters, of this API version.
    Watches(&'static str),
    /// An object of Kueue, by its path.
    Answers(&'static str),
}

/// API group, resource and verb needed for each action.
const NEEDED: [(Deed, &str, &str, &str); 21] = [
    (Deed::Evicts, "", "pods/eviction", "create"),
    (Deed::Allocates, "resource.k8s.io", "resourceclaims/binding", "patch"),
    (Deed::Tells, "events.k8s.io", "events", "create"),
    (Deed::TellsAgain, "events.k8s.io", "events", "patch"),
    (Deed::AsksWhoItIs, "authentication.k8s.io", "tokenreviews", "create"),
    (Deed::AsksWhatHeMay, "authorization.k8s.io", "subjectaccessreviews", "create"),
    (Deed::Reminds, "resource.k8s.io", "deviceclasses", "patch"),
    (Deed::Watches("resource.k8s.io/v1"), "resource.k8s.io", "devicetaintrules", "watch"),
    (Deed::Watches("jobset.x-k8s.io/v1alpha2"), "jobset.x-k8s.io", "jobsets", "watch"),
    (Deed::Watches("leaderworkerset.x-k8s.io/v1"), "leaderworkerset.x-k8s.io", "leaderworkersets", "watch"),
    (Deed::Watches("scheduling.k8s.io/v1beta1"), "scheduling.k8s.io", "podgroups", "watch"),
    (Deed::Watches("gpu.tessera.dev/v1alpha1"), "gpu.tessera.dev", "gpuquotas", "watch"),
    (Deed::Watches(KUEUE), "kueue.x-k8s.io", "workloads", "watch"),
    (Deed::Watches(KUEUE), "kueue.x-k8s.io", "admissionchecks", "watch"),
    (Deed::Watches(KUEUE), "kueue.x-k8s.io", "resourceflavors", "watch"),
    (Deed::Answers("namespaces/rights/workloads/none"), "kueue.x-k8s.io", "workloads", "patch"),
    (Deed::Answers("namespaces/rights/workloads/none/status"), "kueue.x-k8s.io", "workloads/status", "patch"),
    (Deed::Answers("admissionchecks/none/status"), "kueue.x-k8s.io", "admissionchecks/status", "patch"),
    (Deed::MakesTemplates, "resource.k8s.io", "resourceclaimtemplates", "create"),
    (Deed::DeletesTemplates, "resource.k8s.io", "resourceclaimtemplates", "delete"),
    (Deed::SumsUp, "gpu.tessera.dev", "gpuquotas/status", "patch"),
];

impl Deed {
    /// Runs as a dry run, where the API server supports one.
    async fn run(self, controller: &Client, resource: &str) -> Result<(), kube::Error> {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let events = Api::<Event>::namespaced(controller.clone(), RELEASE);
        match self {
            Self::Evicts => {
                let parameters = EvictParams { post_options: dry_run, ..EvictParams::default() };
                Api::<Pod>::namespaced(controller.clone(), RELEASE)
                    .evict("victim", &parameters)
                    .await
                    .map(drop)
            }
            Self::Allocates => {
                let result = json!({"request": "card", "driver": DRIVER, "pool": "p", "device": "gpu-0"});
                let patch = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
                let parameters = PatchParams { dry_run: true, ..PatchParams::default() };
                let claims = Api::<ResourceClaim>::namespaced(controller.clone(), RELEASE);
                claims.patch_status("claim", &parameters, &Patch::Merge(patch)).await.map(drop)
            }
            Self::Tells => events.create(&dry_run, &event("another")).await.map(drop),
            Self::TellsAgain => {
                let parameters = PatchParams { dry_run: true, ..PatchParams::default() };
                let series =
                    json!({"series": {"count": 2, "lastObservedTime": "2026-11-23T00:00:00.000000Z"}});
                events.patch("told", &parameters, &Patch::Merge(series)).await.map(drop)
            }
            Self::AsksWhoItIs => {
                let review = json!({"spec": {"token": "x"}});
                create(controller, "authentication.k8s.io", "tokenreviews", "TokenReview", review).await
            }
            Self::Reminds => {
                let patch = json!({"metadata": {"annotations": {"gpu.tessera.dev/touched": "now"}}});
                let parameters = PatchParams { dry_run: true, ..PatchParams::default() };
                let classes = Api::<DeviceClass>::all(controller.clone());
                classes.patch(CLASS, &parameters, &Patch::Merge(patch)).await.map(drop)
            }
            Self::SumsUp => {
                let request = http::Request::patch("/apis/gpu.tessera.dev/v1alpha1/gpuquotas/none/status")
                    .header("content-type", "application/merge-patch+json");
                permitted(controller.request_text(request.body(b"{}".to_vec()).expect("a request")).await)
            }
            Self::Answers(path) => {
                let request = http::Request::patch(format!("/apis/{KUEUE}/{path}"))
                    .header("content-type", "application/merge-patch+json");
                permitted(controller.request_text(request.body(b"{}".to_vec()).expect("a request")).await)
            }
            Self::MakesTemplates => {
                let request = json!({"name": "card", "exactly": {"deviceClassName": DRIVER}});
                let template = json!({"metadata": {"name": "template"}, "spec": {"spec": {"devices": {"requests": [request]}}}});
                let template = serde_json::from_value(template).expect("a template");
                let templates = Api::<ResourceClaimTemplate>::namespaced(controller.clone(), RELEASE);
                templates.create(&dry_run, &template).await.map(drop)
            }
            Self::DeletesTemplates => {
                let path = format!("/apis/resource.k8s.io/v1/namespaces/{RELEASE}/{resource}/none");
                let request = http::Request::delete(path).body(Vec::new()).expect("a request");
                permitted(controller.request_text(request).await)
            }
            Self::Watches(version) => {
                let path = format!("/apis/{version}/{resource}?watch=true&timeoutSeconds=1");
                let request = http::Request::get(path).body(Vec::new()).expect("a request");
                permitted(controller.request_text(request).await)
            }
            Self::AsksWhatHeMay => {
                let asked = json!({"path": "/fleet.json", "verb": "get"});
                let review = json!({"spec": {"user": "alice", "nonResourceAttributes": asked}});
                create(
                    controller,
                    "authorization.k8s.io",
                    "subjectaccessreviews",
                    "SubjectAccessReview",
                    review,
                )
                .await
            }
        }
    }
}

/// Whoever may not is told so before whether there is such a kind or object.
fn permitted(answer: Result<String, kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

async fn create(
    client: &Client,
    group: &str,
    plural: &str,
    kind: &str,
    mut review: Value,
) -> Result<(), kube::Error> {
    review["apiVersion"] = json!(format!("{group}/v1"));
    review["kind"] = json!(kind);
    let body = serde_json::to_vec(&review).expect("JSON");
    let request =
        http::Request::post(format!("/apis/{group}/v1/{plural}")).header("content-type", "application/json");
    client.request::<Value>(request.body(body).expect("a request")).await.map(drop)
}

fn event(name: &str) -> Event {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": RELEASE}, "eventTime": "2026-11-23T00:00:00.000000Z",
        "reportingController": "rights.example.com/test", "reportingInstance": "test", "action": "Try", "reason": "Tried",
        "note": "a note", "type": "Normal", "regarding": {"kind": "Pod", "namespace": RELEASE, "name": "victim"}}))
    .expect("an Event")
}

/// The role without this right.
fn without(role: &ClusterRole, group: &str, resource: &str, verb: &str) -> ClusterRole {
    let mut role = role.clone();
    let (mut rules, mut is_found) = (Vec::new(), false);
    for rule in role.rules.take().unwrap_or_default() {
        let has = |list: &Option<Vec<String>>, text: &str| list.iter().flatten().any(|one| one == text);
        if !(has(&rule.api_groups, group)
            && has(&rule.resources, resource)
            && rule.verbs.iter().any(|one| one == verb))
        {
            rules.push(rule);
            continue;
        }
        is_found = true;
        let (mut others, mut same) = (rule.clone(), rule);
        others.resources.get_or_insert_default().retain(|one| one != resource);
        same.resources = Some(vec![resource.to_owned()]);
        same.verbs.retain(|one| one != verb);
        rules.extend([others, same].into_iter().filter(|rule| {
            !rule.verbs.is_empty() && rule.resources.as_ref().is_some_and(|resources| !resources.is_empty())
        }));
    }
    assert!(is_found, "the chart gives no right to {verb} {resource}");
    role.rules = Some(rules);
    role
}

/// Waits until the deed is permitted, or forbidden: the API server learns of a role's change a little later.
async fn until(controller: &Client, (deed, resource): (Deed, &str), is_permitted: bool) {
    let begin = Instant::now();
    loop {
        let done = deed.run(controller, resource).await;
        match &done {
            Ok(()) if is_permitted => return,
            // Another condition, on a field, makes the request invalid.
            Err(kube::Error::Api(status)) if !is_permitted && status.message.contains(" cannot ") => return,
            _ => assert!(begin.elapsed() < LONG, "{deed:?} permitted: {is_permitted}; {done:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn without_a_right_of_the_controller_what_it_is_for_fails() {
    let _only = MANAGED_RELEASE.lock().await;
    let cluster = cluster().await;
    let values = format!(
        "driverName={DRIVER},crds.install=false,steering.enabled=false,fleetPage.exposed=true,\
         extendedResourceNames.enabled=true,extendedResourceNames.gpu=example.com/card,\
         managed.convertExtendedResources.enabled=true"
    );
    let chart = chart();
    let install =
        ["install", RELEASE, &chart, "--namespace", RELEASE, "--create-namespace", "--set", &values];
    cluster.helm(&install).await.expect("installed");
    let administrator = cluster.client().await.expect("a client");
    let pod = json!({"metadata": {"name": "victim"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pods: Api<Pod> = Api::namespaced(administrator.clone(), RELEASE);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("created");
    let request = json!({"name": "card", "exactly": {"deviceClassName": DRIVER}});
    let claim = json!({"metadata": {"name": "claim"}, "spec": {"devices": {"requests": [request]}}});
    let claims: Api<ResourceClaim> = Api::namespaced(administrator.clone(), RELEASE);
    claims
        .create(&PostParams::default(), &serde_json::from_value(claim).expect("a claim"))
        .await
        .expect("created");
    let events: Api<Event> = Api::namespaced(administrator.clone(), RELEASE);
    events.create(&PostParams::default(), &event("told")).await.expect("created");

    let account = format!("{RELEASE}-tessera-controller");
    let token = cluster.service_account_config(RELEASE, &account, None).await.expect("a token");
    let controller = connect(token).await;
    let roles: Api<ClusterRole> = Api::all(administrator);
    let name = format!("{RELEASE}-{account}");
    let whole = roles.get(&name).await.expect("the controller's role");
    for (deed, group, resource, verb) in NEEDED {
        until(&controller, (deed, resource), true).await;
        let mut changed = without(&whole, group, resource, verb);
        changed.metadata.resource_version = None;
        roles.replace(&name, &PostParams::default(), &changed).await.expect("changed");
        until(&controller, (deed, resource), false).await;
        let mut whole = whole.clone();
        whole.metadata.resource_version = None;
        roles.replace(&name, &PostParams::default(), &whole).await.expect("changed back");
    }
    let uninstall = ["uninstall", RELEASE, "--no-hooks", "--namespace", RELEASE, "--wait"];
    cluster.helm(&uninstall).await.expect("uninstalled");
}
