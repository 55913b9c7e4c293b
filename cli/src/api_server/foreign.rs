//! Objects of other drivers in a cluster, as far as the user may read them.

use std::collections::BTreeSet;

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use serde_json::Value;

use super::{ClusterError, failed};
use crate::foreign::{self, Foreign};

/// Number of objects per answer: a helm release has up to 1 MiB.
const PAGE: u32 = 50;

/// Reads the objects. Unreadable kinds are left out, with a warning about the consequence.
pub async fn read(client: &Client, warnings: &mut Vec<String>) -> Result<Foreign, ClusterError> {
    let mut found = Foreign::default();
    // helm's Secret for a release; of its history the last.
    let releases =
        ListParams::default().labels("owner=helm,status=deployed").fields("type=helm.sh/release.v1");
    let all = |resource: &ApiResource| Api::<DynamicObject>::all_with(client.clone(), resource);
    let without =
        "the helm values are unknown: DaemonSets and ClusterPolicies are read instead, with fewer settings";
    let secrets = list(all(&resource("", "v1", "Secret", "secrets")), releases, "list of Secrets").await?;
    found.secrets = or_warn(secrets, "secrets", without, warnings);
    let daemon_sets = resource("apps", "v1", "DaemonSet", "daemonsets");
    let daemon_sets = list(all(&daemon_sets), ListParams::default(), "list of DaemonSets").await?;
    let without = "drivers installed without helm are not found";
    found.daemon_sets = or_warn(daemon_sets, "daemonsets.apps", without, warnings);
    found.daemon_sets.retain(|set| {
        foreign::images(set).any(|image| image.contains("k8s-device-plugin") || image.contains("dra-driver"))
    });
    let policies = resource("nvidia.com", "v1", "ClusterPolicy", "clusterpolicies");
    let policies = list(all(&policies), ListParams::default(), "list of ClusterPolicies").await?;
    let without = "the GPU Operator's settings are taken from its helm values";
    found.cluster_policies = or_warn(policies, "clusterpolicies.nvidia.com", without, warnings);
    let namespaces: BTreeSet<String> =
        found.secrets.iter().chain(&found.daemon_sets).map(|of| foreign::namespace(of).to_owned()).collect();
    let config_maps = resource("", "v1", "ConfigMap", "configmaps");
    let mut is_told = false;
    for namespace in namespaces {
        let of_namespace = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &config_maps);
        match list(of_namespace, ListParams::default(), "list of ConfigMaps").await? {
            Some(read) => found.config_maps.extend(read),
            None if is_told => {}
            None => {
                is_told = true;
                warnings.push(format!(
                    "you may not list configmaps in namespace {namespace}: sharing configurations and MIG layouts \
                     are unknown"
                ));
            }
        }
    }
    Ok(found)
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// The objects; `None` if the user may not read them. An unknown kind has none.
async fn list(
    api: Api<DynamicObject>,
    which: ListParams,
    what: &'static str,
) -> Result<Option<Vec<Value>>, ClusterError> {
    let mut found = Vec::new();
    let mut parameters = which.limit(PAGE);
    loop {
        let page = match api.list(&parameters).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Some(Vec::new())),
            Err(error) => return Err(failed(what)(error)),
        };
        for object in page.items {
            let object =
                serde_json::to_value(object).map_err(|error| failed(what)(kube::Error::SerdeError(error)))?;
            found.push(object);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(Some(found)),
        }
    }
}

fn or_warn(read: Option<Vec<Value>>, resource: &str, so: &str, warnings: &mut Vec<String>) -> Vec<Value> {
    read.unwrap_or_else(|| {
        warnings.push(format!("you may not list {resource} in the whole cluster: {so}"));
        Vec::new()
    })
}
