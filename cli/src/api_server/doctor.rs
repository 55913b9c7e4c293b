//! Checks of a running cluster beyond its stored objects.

use std::collections::BTreeMap;

use hyper::header::DATE;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use kube::api::{DynamicObject, ListParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt as _};

use tessera_api::conversion::{OPT_IN_LABEL, OPT_IN_VALUE};
use tessera_cluster::{Key, PodExt};

use super::own_kinds;
use super::steering::controller;
use crate::doctor::{Conversion, KueueSettings, Live, QueuedTwice};
use crate::unasked::Unasked;

/// Limit of unready plugins asked for their reasons.
const MOST_ASKED: usize = 10;

/// Limit of unscheduled pods examined; also the page size.
const MOST_PENDING: u32 = 500;

/// Runs the checks. Results are absent where permissions or answers are missing.
pub async fn live(client: &Client) -> Live {
    let (
        version,
        schedulers,
        gates,
        controller,
        policies,
        conversion,
        (plugins, readyz),
        unschedulable,
        unasked,
        queued_twice,
        kueue,
        clock,
    ) = tokio::join!(
        async { client.apiserver_version().await.ok().map(|version| version.git_version) },
        schedulers(client),
        gates(client),
        controller(client),
        policies(client),
        conversion(client),
        plugins(client),
        unschedulable(client),
        unasked(client),
        async { queued_twice(client).await.unwrap_or_default() },
        kueue(client),
        clock(client),
    );
    Live {
        version,
        schedulers,
        gates,
        controller,
        policies,
        conversion,
        plugins,
        unschedulable,
        readyz,
        unasked,
        queued_twice,
        kueue,
        clock,
    }
}

fn get(path: &str) -> Option<hyper::Request<Vec<u8>>> {
    hyper::Request::get(path).body(Vec::new()).ok()
}

/// Versions of kube-schedulers by pod, from image tags; only for static pods as in kubeadm clusters.
async fn schedulers(client: &Client) -> BTreeMap<String, String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let Ok(pods) = pods.list(&ListParams::default().labels("component=kube-scheduler")).await else {
        return BTreeMap::new();
    };
    let version = |pod: &Pod| {
        let image = pod.spec.as_ref()?.containers.first()?.image.as_deref()?;
        let (_, tag) = image.split('@').next()?.rsplit_once(':')?;
        tag.starts_with('v').then(|| (pod.name_any(), tag.to_owned()))
    };
    pods.items.iter().filter_map(version).collect()
}

/// The gates, from the API server's metrics: `kubernetes_feature_enabled{name="DRADeviceTaints",stage="BETA"} 1`.
async fn gates(client: &Client) -> Option<BTreeMap<String, bool>> {
    let text = client.request_text(get("/metrics")?).await.ok()?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("kubernetes_feature_enabled{name=\""));
    let gate = |line: &str| {
        let (name, rest) = line.split_once('"')?;
        Some((name.to_owned(), rest.trim_end().ends_with(" 1")))
    };
    Some(lines.filter_map(gate).collect())
}

async fn policies(client: &Client) -> Option<Vec<String>> {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let bindings = bindings.list(&ListParams::default()).await.ok()?;
    Some(bindings.items.into_iter().map(|binding| binding.spec.policy_name).collect())
}

/// `None` before Kubernetes 1.36, without the kind.
async fn conversion(client: &Client) -> Option<Conversion> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let opted_in = ListParams::default().labels(&format!("{OPT_IN_LABEL}={OPT_IN_VALUE}"));
    let namespaces = namespaces.list(&opted_in).await.ok()?;
    let bindings: Api<MutatingAdmissionPolicyBinding> = Api::all(client.clone());
    let bindings = bindings.list(&ListParams::default()).await.ok()?;
    Some(Conversion {
        namespaces: namespaces.items.iter().map(kube::ResourceExt::name_any).collect(),
        policies: bindings.items.into_iter().filter_map(|binding| binding.spec?.policy_name).collect(),
    })
}

/// kube-scheduler's messages about unschedulable pods.
async fn unschedulable(client: &Client) -> BTreeMap<Key, String> {
    let pods: Api<Pod> = Api::all(client.clone());
    let pending = ListParams::default().fields("status.phase=Pending,spec.nodeName=").limit(MOST_PENDING);
    let Ok(pods) = pods.list(&pending).await else { return BTreeMap::new() };
    let said = |pod: &Pod| Some((Key::from(&pod.metadata), pod.scheduler_message()?.to_owned()));
    pods.items.iter().filter_map(said).collect()
}

/// Running pods with visible cards but no request for any; page by page, because the pods of a large cluster are hundreds of megabytes.
async fn unasked(client: &Client) -> Option<Vec<Unasked>> {
    let pods: Api<Pod> = Api::all(client.clone());
    let mut found = Vec::new();
    let mut page = ListParams::default().fields("status.phase=Running").limit(MOST_PENDING);
    loop {
        let listed = pods.list(&page).await.ok()?;
        found.extend(listed.items.iter().filter_map(Unasked::of));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Some(found),
        }
    }
}

/// Namespaces with a LocalQueue of Kueue, selected by a GpuQuota; `None` without these kinds, and for users who may not list them.
async fn queued_twice(client: &Client) -> Option<Vec<QueuedTwice>> {
    let kueue = kube::discovery::group(client, "kueue.x-k8s.io").await.ok()?;
    let (queue, _) = kueue.recommended_kind("LocalQueue")?;
    let all = ListParams::default();
    let queues = Api::<DynamicObject>::all_with(client.clone(), &queue).list(&all).await.ok()?;
    let namespaces = Api::<Namespace>::all(client.clone()).list(&all).await.ok()?;
    let (resource, what) = ("gpuquotas.gpu.tessera.dev", "list of GpuQuotas");
    let quotas = own_kinds::list(client, resource, what, &mut Vec::new()).await.ok()??;
    Some(QueuedTwice::of(&queues.items, &namespaces.items, &quotas))
}

/// Settings of Kueue in its usual namespace.
async fn kueue(client: &Client) -> Option<KueueSettings> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kueue-system");
    let map = maps.get("kueue-manager-config").await.ok()?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kueue-system");
    let deployment = deployments.get("kueue-controller-manager").await.ok();
    let pod = deployment.and_then(|deployment| deployment.spec.template.spec);
    let containers = pod.into_iter().flat_map(|pod| pod.containers);
    let arguments: Vec<String> =
        containers.flat_map(|container| container.args.unwrap_or_default()).collect();
    KueueSettings::read(map.data?.get("controller_manager_config.yaml")?, &arguments)
}

/// Number of plugin pods, if known, and the `/readyz` answers of unready ones.
async fn plugins(client: &Client) -> (Option<usize>, BTreeMap<String, String>) {
    let labels = "app.kubernetes.io/name=tessera,app.kubernetes.io/component=kubelet-plugin";
    let pods: Api<Pod> = Api::all(client.clone());
    let Ok(pods) = pods.list(&ListParams::default().labels(labels)).await else {
        return (None, BTreeMap::new());
    };
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let mut told = BTreeMap::new();
    for pod in pods.items.iter().filter(|pod| !is_ready(pod)).take(MOST_ASKED) {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}:http/proxy/readyz",
            pod.namespace().unwrap_or_default(),
            pod.name_any()
        );
        // An unready plugin answers 503, with the reasons.
        let text = match get(&path) {
            None => continue,
            Some(request) => match client.request_text(request).await {
                Ok(text) => text,
                Err(kube::Error::Api(status)) => status.message.clone(),
                Err(_) => continue,
            },
        };
        told.insert(pod.name_any(), text);
    }
    (Some(pods.items.len()), told)
}

/// The API server's clock less this machine's, in seconds, by the date of an answer.
async fn clock(client: &Client) -> Option<i64> {
    let request = hyper::Request::get("/version").body(Body::empty()).ok()?;
    let answer = client.send(request).await.ok()?;
    let date = answer.headers().get(DATE)?.to_str().ok()?;
    let date = rfc2822::parse(date).ok()?.timestamp();
    Some(date.as_second() - Timestamp::now().as_second())
}
