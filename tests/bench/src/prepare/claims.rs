//! Claims allocated by the benchmark itself, to measure only the plugin.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tessera_harness::{Cluster, installation::DRIVER, kubelet_stand_in::Claim};

use super::plugin;

/// Creates `count` claims, each with one of `devices`.
pub async fn allocate(cluster: &Cluster, devices: &[String], count: usize) -> Result<Vec<Claim>> {
    ensure!(devices.len() >= count, "the machine has {} cards: {count} are needed", devices.len());
    let api: Api<ResourceClaim> = Api::namespaced(cluster.client().await?, "default");
    let mut claims = Vec::new();
    for (index, device) in devices.iter().take(count).enumerate() {
        claims.push(make(&api, &format!("bench-{index}"), result(device)).await?);
    }
    Ok(claims)
}

/// Creates `count` claims, each with an equal MPS share of `device`.
pub async fn allocate_shares(cluster: &Cluster, device: &str, count: usize) -> Result<Vec<Claim>> {
    let api: Api<ResourceClaim> = Api::namespaced(cluster.client().await?, "default");
    let mut claims = Vec::new();
    for index in 0..count {
        let mut share = result(device);
        share["shareID"] = format!("5ba7e000-0000-4000-8000-{index:012x}").into();
        share["consumedCapacity"] = json!({"memory": "1Gi", "compute": "2", "clients": "1"});
        claims.push(make(&api, &format!("bench-{index}"), share).await?);
    }
    Ok(claims)
}

fn result(device: &str) -> Value {
    json!({"request": "card", "driver": DRIVER, "pool": format!("{DRIVER}/{}", plugin::NODE), "device": device})
}

async fn make(api: &Api<ResourceClaim>, name: &str, result: Value) -> Result<Claim> {
    let made = api.create(&PostParams::default(), &from(claim(name))?).await?;
    let status = json!({"status": {"allocation": {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [plugin::NODE]},
        ]}]},
    }}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    let uid = made.metadata.uid.context("a claim without uid")?;
    Ok(Claim { namespace: "default".to_owned(), name: name.to_owned(), uid })
}

/// Creates an unallocated claim, and returns its name.
pub async fn one(cluster: &Cluster) -> Result<String> {
    let api: Api<ResourceClaim> = Api::namespaced(cluster.client().await?, "default");
    api.create(&PostParams::default(), &from(claim("bench-get"))?).await?;
    Ok("bench-get".to_owned())
}

/// Deletes all claims.
pub async fn delete(cluster: &Cluster) -> Result<()> {
    let api: Api<ResourceClaim> = Api::namespaced(cluster.client().await?, "default");
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "card", "exactly": {"deviceClassName": "any"}}]}},
    })
}

fn from(value: Value) -> Result<ResourceClaim> {
    Ok(serde_json::from_value(value)?)
}
