//! The GpuPools of a cluster.

use std::collections::BTreeMap;

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, Resource};
use tessera_api::gpu_pool::GpuPool;
use tessera_cluster::Key;

use super::{ClusterError, failed};

/// All pools; `None` if the API server has no such kind. Pools unknown to this version cause a warning.
pub async fn list(
    client: &Client,
    warnings: &mut Vec<String>,
) -> Result<Option<BTreeMap<Key, GpuPool>>, ClusterError> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<GpuPool>(&()));
    let objects = match api.list(&ListParams::default()).await {
        Ok(objects) => objects,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            return Err(ClusterError::Right {
                resource: "gpupools.gpu.tessera.dev",
                message: status.message.clone(),
            });
        }
        Err(error) => return Err(failed("list of GpuPools")(error)),
    };
    let mut pools = BTreeMap::new();
    for mut object in objects {
        // Items of a list have none.
        object.types = Some(kube::api::TypeMeta {
            api_version: GpuPool::api_version(&()).into_owned(),
            kind: GpuPool::kind(&()).into_owned(),
        });
        let name = object.metadata.name.clone().unwrap_or_default();
        match serde_json::to_value(&object).and_then(serde_json::from_value) {
            Ok(pool) => drop(pools.insert(Key::cluster(name), pool)),
            Err(error) => warnings.push(format!(
                "GpuPool {name} is left out: this version of kubectl gpu cannot read it: {error}"
            )),
        }
    }
    Ok(Some(pools))
}
