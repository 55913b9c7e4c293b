//! The known GpuPools, labels of this node and version of the API server.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::DynamicObject;
use kube::runtime::watcher::Event;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tessera_api::{GpuPoolSpec, PciBusId};

/// State received from the API server, or read from the file of its last known values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Known {
    /// The labels of the node; `None` until they are known.
    pub labels: Option<BTreeMap<String, String>>,
    /// The pools of the cluster by name; `None` until they are known.
    pub pools: Option<BTreeMap<String, KnownPool>>,
    /// `gitVersion` of the API server; empty if refused; `None` until the first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// Cards whose devices have the taint of managed cards: of managed pools, and of pools managed until a moment ago.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tainted: BTreeSet<PciBusId>,
}

/// One GpuPool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KnownPool {
    /// The object's uid: another object of the same name is another pool.
    pub uid: String,
    /// Creation time of the pool.
    pub created: Option<Time>,
    /// The last readable spec; `None` if there never was one.
    pub spec: Option<GpuPoolSpec>,
    /// Why the present spec cannot be read; `None` if readable.
    pub error: Option<String>,
}

/// The pools received from the API server.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The pools by name; `None` until the first complete list.
    pub(super) pools: Option<BTreeMap<String, KnownPool>>,
    /// A list under way.
    listing: BTreeMap<String, KnownPool>,
}

impl Told {
    /// Applies an event of the watch. `known` are the pools known so far: for an unreadable spec, the last readable one is
    /// kept.
    pub(super) fn observe(
        &mut self,
        event: Event<DynamicObject>,
        known: Option<&BTreeMap<String, KnownPool>>,
    ) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(object) => {
                let (name, pool) = read(object, known);
                self.listing.insert(name, pool);
            }
            Event::InitDone => self.pools = Some(std::mem::take(&mut self.listing)),
            Event::Apply(object) => {
                let (name, pool) = read(object, known);
                self.pools.get_or_insert_default().insert(name, pool);
            }
            Event::Delete(object) => {
                let name = object.metadata.name.unwrap_or_default();
                self.pools.get_or_insert_default().remove(&name);
            }
        }
    }
}

/// A pool by its name.
fn read(object: DynamicObject, known: Option<&BTreeMap<String, KnownPool>>) -> (String, KnownPool) {
    let name = object.metadata.name.unwrap_or_default();
    let mut pool = KnownPool {
        uid: object.metadata.uid.unwrap_or_default(),
        created: object.metadata.creation_timestamp,
        ..KnownPool::default()
    };
    // An object without a spec asks for the defaults.
    let none = Value::Object(Map::new());
    let spec = object.data.get("spec").filter(|spec| !spec.is_null()).unwrap_or(&none);
    match GpuPoolSpec::decode(spec) {
        Ok(spec) => pool.spec = Some(spec),
        Err(error) => {
            let before = known.and_then(|known| known.get(&name)).filter(|before| before.uid == pool.uid);
            pool.spec = before.and_then(|before| before.spec.clone());
            pool.error = Some(error.to_string());
        }
    }
    (name, pool)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, uid: &str, spec: Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuPool",
            "metadata": {"name": name, "uid": uid, "creationTimestamp": "2026-11-21T10:00:00Z"},
            "spec": spec,
        }))
        .unwrap()
    }

    fn observe(told: &mut Told, event: Event<DynamicObject>) {
        let known = told.pools.clone();
        told.observe(event, known.as_ref());
    }

    #[test]
    fn a_list_replaces_what_was_known_only_when_it_is_whole() {
        let mut told = Told::default();
        observe(&mut told, Event::Init);
        observe(&mut told, Event::InitApply(object("a", "1", json!({"priority": 1}))));
        assert_eq!(told.pools, None);
        observe(&mut told, Event::InitDone);
        assert_eq!(told.pools.as_ref().unwrap()["a"].spec.as_ref().unwrap().priority, 1);
        observe(&mut told, Event::Apply(object("b", "2", Value::Null)));
        observe(&mut told, Event::Init);
        assert_eq!(told.pools.as_ref().unwrap().len(), 2);
        observe(&mut told, Event::InitDone);
        assert_eq!(told.pools, Some(BTreeMap::new()));
    }

    #[test]
    fn a_spec_that_cannot_be_read_leaves_the_last_one() {
        let mut told = Told::default();
        observe(&mut told, Event::Apply(object("a", "1", json!({"priority": 1}))));
        observe(&mut told, Event::Apply(object("a", "1", json!({"later": 1}))));
        let kept = told.pools.as_ref().unwrap()["a"].clone();
        assert_eq!(kept.spec.as_ref().unwrap().priority, 1);
        assert!(kept.error.as_ref().unwrap().contains("later"));
        let again: KnownPool = serde_json::from_str(&serde_json::to_string(&kept).unwrap()).unwrap();
        assert_eq!(again, kept);

        observe(&mut told, Event::Apply(object("a", "2", json!({"later": 1}))));
        assert_eq!(told.pools.as_ref().unwrap()["a"].spec, None, "another object of that name");
        observe(&mut told, Event::Apply(object("a", "2", json!({}))));
        let pool = &told.pools.as_ref().unwrap()["a"];
        assert_eq!((pool.spec.is_some(), &pool.error), (true, &None));
        observe(&mut told, Event::Delete(object("a", "2", json!({}))));
        assert_eq!(told.pools, Some(BTreeMap::new()));
    }
}
