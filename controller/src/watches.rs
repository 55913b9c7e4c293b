//! What exists, from watches: every object as it comes, projected by whoever takes it and never kept here.

use std::collections::HashSet;
use std::fmt::Debug;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
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
            follow::<DeviceTaintRule>(&client, Kind::DeviceTaintRule, &seen),
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
    let per_page = if kind == Kind::ResourceSlice { SLICES_PER_PAGE } else { OBJECTS_PER_PAGE };
    let config = watcher::Config::default().page_size(per_page);
    // Objects that were seen once, to tell after a new list which of them are gone.
    let mut known: HashSet<Key> = HashSet::new();
    let mut listed: HashSet<Key> = HashSet::new();
    let mut told = false;
    let mut events = Box::pin(watcher(Api::<K>::all(client.clone()), config).default_backoff());
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
        told = false;
        let change = match event {
            watcher::Event::Init => {
                listed.clear();
                continue;
            }
            watcher::Event::InitApply(object) => {
                let key = tessera_cluster::key(object.meta());
                listed.insert(key.clone());
                known.insert(key);
                Observation::Applied(Box::new(object.into()))
            }
            watcher::Event::Apply(object) => {
                known.insert(tessera_cluster::key(object.meta()));
                Observation::Applied(Box::new(object.into()))
            }
            watcher::Event::Delete(object) => {
                let key = tessera_cluster::key(object.meta());
                known.remove(&key);
                Observation::Deleted(kind, key)
            }
            watcher::Event::InitDone => {
                let gone: Vec<Key> = known.difference(&listed).cloned().collect();
                for key in gone {
                    known.remove(&key);
                    if seen.send(Seen::Change(Observation::Deleted(kind, key))).await.is_err() {
                        return;
                    }
                }
                listed = HashSet::new();
                if seen.send(Seen::Complete(kind)).await.is_err() {
                    return;
                }
                continue;
            }
        };
        if seen.send(Seen::Change(change)).await.is_err() {
            return;
        }
    }
}
