//! What `doctor` reads of Kueue.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DynamicObject, ListParams};
use kube::discovery::ApiGroup;
use kube::{Api, Client};

use super::reader::is_forbidden;
use super::{ClusterError, own_kinds};
use crate::doctor::{KueueSettings, QueuedTwice};

/// Namespace of an installation by its own manifests or chart.
const NAMESPACE: &str = "kueue-system";

/// Namespaces with a LocalQueue that a GpuQuota selects, and Kueue's settings. Where Kueue's kinds are served, what may not be read is
/// a warning.
pub async fn read(client: &Client, warnings: &mut Vec<String>) -> (Vec<QueuedTwice>, Option<KueueSettings>) {
    let Ok(group) = kube::discovery::group(client, "kueue.x-k8s.io").await else { return (Vec::new(), None) };
    let (queued_twice, settings) = tokio::join!(queued_twice(client, &group), settings(client));
    if let Err(resource) = &queued_twice {
        warnings.push(format!(
            "you may not list {resource} in the whole cluster: namespaces whose jobs both Kueue and a GpuQuota order are not found"
        ));
    }
    if let Err(resource) = &settings {
        warnings.push(format!(
            "you may not get {resource} in namespace {NAMESPACE}: Kueue's settings are not checked"
        ));
    }
    (queued_twice.ok().flatten().unwrap_or_default(), settings.ok().flatten())
}

/// `Ok(None)` if there is no answer; an error is the resource that the user may not list.
async fn queued_twice(client: &Client, group: &ApiGroup) -> Result<Option<Vec<QueuedTwice>>, &'static str> {
    let Some((queue, _)) = group.recommended_kind("LocalQueue") else { return Ok(None) };
    let all = ListParams::default();
    let queues = Api::<DynamicObject>::all_with(client.clone(), &queue).list(&all).await;
    let Some(queues) = unless_forbidden(queues, "localqueues.kueue.x-k8s.io")? else { return Ok(None) };
    let namespaces = Api::<Namespace>::all(client.clone()).list(&all).await;
    let Some(namespaces) = unless_forbidden(namespaces, "namespaces")? else { return Ok(None) };
    let (resource, what) = ("gpuquotas.gpu.tessera.dev", "list of GpuQuotas");
    match own_kinds::list(client, resource, what, &mut Vec::new()).await {
        Err(ClusterError::Right { .. }) => Err(resource),
        Err(_) | Ok(None) => Ok(None),
        Ok(Some(quotas)) => Ok(Some(QueuedTwice::of(&queues.items, &namespaces.items, &quotas))),
    }
}

/// `Ok(None)` without an answer or such an object; an error is the resource that the user may not get.
async fn settings(client: &Client) -> Result<Option<KueueSettings>, &'static str> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map = unless_forbidden(maps.get("kueue-manager-config").await, "configmaps")?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let deployment = deployments.get("kueue-controller-manager").await;
    let deployment = unless_forbidden(deployment, "deployments.apps")?;
    let pod = deployment.and_then(|deployment| deployment.spec.template.spec);
    let containers = pod.into_iter().flat_map(|pod| pod.containers);
    let arguments: Vec<String> =
        containers.flat_map(|container| container.args.unwrap_or_default()).collect();
    let configuration = map.and_then(|map| map.data?.remove("controller_manager_config.yaml"));
    Ok(configuration.and_then(|configuration| KueueSettings::read(&configuration, &arguments)))
}

/// `resource` if the user lacks the right; `None` after any other error.
fn unless_forbidden<T>(
    read: Result<T, kube::Error>,
    resource: &'static str,
) -> Result<Option<T>, &'static str> {
    match read {
        Err(error) if is_forbidden(&error) => Err(resource),
        read => Ok(read.ok()),
    }
}
