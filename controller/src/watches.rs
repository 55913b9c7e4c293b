//! What exists, from watches: every object as it comes, projected by whoever takes it and never kept here.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use kube::api::{DynamicObject, GroupVersionKind, ListParams};
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tessera_cluster::{Key, Kind, Object};
use tessera_decide::Observation;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// What a watch says.
#[derive(Debug)]
pub enum Seen {
    /// Something changed.
    Change(Observation),
    /// All objects of the kind that existed have been seen; said again after every reconnection that needed a new list.
    Complete(Kind),
}

/// The kinds that are watched.
pub const KINDS: [Kind; 9] = [
    Kind::Node,
    Kind::Pod,
    Kind::ResourceClaim,
    Kind::ResourceClaimTemplate,
    Kind::ResourceSlice,
    Kind::DeviceClass,
    Kind::DeviceTaintRule,
    Kind::PersistentVolumeClaim,
    Kind::PersistentVolume,
];

/// Objects of a page: a ResourceSlice takes some 100 KiB while it is read, so that few are read at once.
const SLICES_PER_PAGE: u32 = 50;
const OBJECTS_PER_PAGE: u32 = 500;

/// Watches all kinds until `shutdown`.
pub async fn run(client: Client, seen: mpsc::Sender<Seen>, shutdown: CancellationToken) {
    let watches = async {
        tokio::join!(
            follow::<DeviceClass>(&client, Kind::DeviceClass, &seen),
            follow_taint_rules(&client, &seen),
            follow::<Node>(&client, Kind::Node, &seen),
            follow::<ResourceSlice>(&client, Kind::ResourceSlice, &seen),
            follow::<ResourceClaim>(&client, Kind::ResourceClaim, &seen),
            follow::<ResourceClaimTemplate>(&client, Kind::ResourceClaimTemplate, &seen),
            follow::<PersistentVolumeClaim>(&client, Kind::PersistentVolumeClaim, &seen),
            follow::<PersistentVolume>(&client, Kind::PersistentVolume, &seen),
            follow::<Pod>(&client, Kind::Pod, &seen),
        )
    };
    shutdown.run_until_cancelled(watches).await;
}

async fn follow<K>(client: &Client, kind: Kind, seen: &mpsc::Sender<Seen>)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Into<Object> + 'static,
{
    follow_api(Api::<K>::all(client.clone()), kind, seen, |object| Ok(object.into())).await;
}

/// API versions of DeviceTaintRule, the newest first; all have the same form.
const TAINT_RULE_VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1alpha3"];

/// How often to look whether DeviceTaintRules exist by now: an API server has to be restarted for that.
const LOOK_FOR_TAINT_RULES: Duration = Duration::from_secs(600);

/// DeviceTaintRules exist only where their feature gate is on, in one of several API versions.
async fn follow_taint_rules(client: &Client, seen: &mpsc::Sender<Seen>) {
    loop {
        for version in TAINT_RULE_VERSIONS {
            let kind = GroupVersionKind::gvk("resource.k8s.io", version, "DeviceTaintRule");
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
            match api.list(&ListParams::default().limit(1)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                _ => return follow_api(api, Kind::DeviceTaintRule, seen, taint_rule).await,
            }
        }
        if seen.send(Seen::Complete(Kind::DeviceTaintRule)).await.is_err() {
            return;
        }
        tokio::time::sleep(LOOK_FOR_TAINT_RULES).await;
    }
}

/// A rule of any version as one of v1.
fn taint_rule(object: DynamicObject) -> Result<Object, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = "resource.k8s.io/v1".into();
    value["kind"] = "DeviceTaintRule".into();
    Ok(serde_json::from_value::<DeviceTaintRule>(value)?.into())
}

async fn follow_api<K>(
    api: Api<K>,
    kind: Kind,
    seen: &mpsc::Sender<Seen>,
    convert: impl Fn(K) -> Result<Object, serde_json::Error>,
) where
    K: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
    K::DynamicType: Clone,
{
    let per_page = if kind == Kind::ResourceSlice { SLICES_PER_PAGE } else { OBJECTS_PER_PAGE };
    let config = watcher::Config::default().page_size(per_page);
    // Objects with the number of the list in or after which they were last seen: a new list tells which are gone.
    let mut known: HashMap<Key, u32> = HashMap::new();
    let mut list = 0;
    let mut told = false;
    let mut events = Box::pin(watcher(api, config).default_backoff());
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                // An expired watch is part of the protocol: a new list follows.
                if !told && !matches!(error, watcher::Error::WatchError(ref status) if status.code == 410) {
                    tracing::warn!(?kind, %error, "a watch broke off; trying again");
                    told = true;
                }
                continue;
            }
        };
        if !matches!(event, watcher::Event::Init) {
            told = false;
        }
        let applied = match event {
            watcher::Event::Init => {
                list += 1;
                continue;
            }
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                known.insert(tessera_cluster::key(object.meta()), list);
                convert(object)
            }
            watcher::Event::Delete(object) => {
                let key = tessera_cluster::key(object.meta());
                known.remove(&key);
                if seen.send(Seen::Change(Observation::Deleted(kind, key))).await.is_err() {
                    return;
                }
                continue;
            }
            watcher::Event::InitDone => {
                for (key, _) in known.extract_if(|_, seen| *seen != list).collect::<Vec<_>>() {
                    if seen.send(Seen::Change(Observation::Deleted(kind, key))).await.is_err() {
                        return;
                    }
                }
                if seen.send(Seen::Complete(kind)).await.is_err() {
                    return;
                }
                continue;
            }
        };
        match applied {
            Ok(object) => {
                if seen.send(Seen::Change(Observation::Applied(Box::new(object)))).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::warn!(?kind, %error, "an object cannot be read; it counts as absent"),
        }
    }
}
