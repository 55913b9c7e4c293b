//! Objects of Tessera's own kinds.

use std::collections::BTreeMap;

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tessera_cluster::Key;

use super::{ClusterError, failed};

/// All objects of the kind; `None` if the API server has no such kind. Objects unreadable for this version cause a warning.
/// `resource`: plural and group. `what`: the request, for errors.
pub async fn list<K: Resource<DynamicType = ()> + DeserializeOwned>(
    client: &Client,
    resource: &'static str,
    what: &'static str,
    warnings: &mut Vec<String>,
) -> Result<Option<BTreeMap<Key, K>>, ClusterError> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    let objects = match api.list(&ListParams::default()).await {
        Ok(objects) => objects,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            return Err(ClusterError::Right { resource, message: status.message.clone() });
        }
        Err(error) => return Err(failed(what)(error)),
    };
    let kind = K::kind(&());
    let mut found = BTreeMap::new();
    for mut object in objects {
        // Items of a list have none.
        object.types = Some(kube::api::TypeMeta {
            api_version: K::api_version(&()).into_owned(),
            kind: kind.clone().into_owned(),
        });
        let name = object.metadata.name.clone().unwrap_or_default();
        match serde_json::to_value(&object).and_then(serde_json::from_value) {
            Ok(read) => drop(found.insert(Key::cluster(name), read)),
            Err(error) => warnings.push(format!(
                "{kind} {name} is left out: this version of kubectl gpu cannot read it: {error}"
            )),
        }
    }
    Ok(Some(found))
}
