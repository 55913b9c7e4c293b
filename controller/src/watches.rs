//! What exists, from watches: every object as it comes, projected by whoever takes it and never kept here.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use kube::api::{DynamicObject, GroupVersionKind, ListParams};
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tessera_cluster::workloads::{DisruptionBudget, Job, JobSet, LeaderWorkerSet, PodGroup};
use tessera_cluster::{Key, Kind, Object};
use tessera_decide::Observation;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// What a watch says.
#[derive(Debug)]
pub enum Seen {
    /// Something changed.
    Change(Observation),
    /// All objects of the kind that existed have been seen; said again after every reconnection that needed a new list.
    Complete(Kind),
}

/// The kinds that are watched.
pub const KINDS: [Kind; 14] = [
    Kind::Node,
    Kind::Pod,
    Kind::ResourceClaim,
    Kind::ResourceClaimTemplate,
    Kind::ResourceSlice,
    Kind::DeviceClass,
    Kind::DeviceTaintRule,
    Kind::PersistentVolumeClaim,
    Kind::PersistentVolume,
    Kind::Job,
    Kind::JobSet,
    Kind::LeaderWorkerSet,
    Kind::PodGroup,
    Kind::DisruptionBudget,
];

/// Objects of a page: a ResourceSlice takes some 100 KiB while it is read, so that few are read at once.
const SLICES_PER_PAGE: u32 = 50;
const OBJECTS_PER_PAGE: u32 = 500;

/// A kind that not every cluster has, in one of several API versions.
struct MayBeServed {
    kind: Kind,
    group: &'static str,
    /// The newest first; what is read of all of them has the same form.
    versions: &'static [&'static str],
    name: &'static str,
    /// How often to look whether it exists by now.
    look_every: Duration,
    read: fn(DynamicObject) -> Result<Object, serde_json::Error>,
}

/// The kinds of that sort.
const MAY_BE_SERVED: [MayBeServed; 4] = [
    MayBeServed {
        kind: Kind::DeviceTaintRule,
        group: "resource.k8s.io",
        versions: &["v1", "v1beta2", "v1alpha3"],
        name: "DeviceTaintRule",
        // An API server has to be restarted for it.
        look_every: Duration::from_secs(600),
        read: taint_rule,
    },
    MayBeServed {
        kind: Kind::JobSet,
        group: "jobset.x-k8s.io",
        versions: &["v1alpha2"],
        name: "JobSet",
        look_every: Duration::from_secs(60),
        read: read::<JobSet>,
    },
    MayBeServed {
        kind: Kind::LeaderWorkerSet,
        group: "leaderworkerset.x-k8s.io",
        versions: &["v1"],
        name: "LeaderWorkerSet",
        look_every: Duration::from_secs(60),
        read: read::<LeaderWorkerSet>,
    },
    MayBeServed {
        kind: Kind::PodGroup,
        group: "scheduling.k8s.io",
        versions: &["v1beta1", "v1alpha3", "v1alpha2"],
        name: "PodGroup",
        look_every: Duration::from_secs(600),
        read: read::<PodGroup>,
    },
];

/// The watches of all kinds.
pub struct Watches {
    /// The API server.
    pub client: Client,
    /// Receives what they say.
    pub seen: mpsc::Sender<Seen>,
    /// The loop's time.
    pub clock: Clock,
    /// Changes when the watch of claims is to begin anew.
    pub claims_asked: watch::Receiver<u64>,
}

impl Watches {
    /// Watches until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let all = async {
            // Each on the heap: together they would be large for a thread's stack.
            tokio::join!(
                self.follow::<DeviceClass>(Kind::DeviceClass).boxed(),
                self.follow_as::<Job>(Kind::Job, "batch", "Job").boxed(),
                self.follow_as::<DisruptionBudget>(Kind::DisruptionBudget, "policy", "PodDisruptionBudget")
                    .boxed(),
                join_all(MAY_BE_SERVED.iter().map(|kind| self.follow_where_served(kind).boxed())),
                self.follow::<Node>(Kind::Node).boxed(),
                self.follow::<ResourceSlice>(Kind::ResourceSlice).boxed(),
                self.follow::<ResourceClaim>(Kind::ResourceClaim).boxed(),
                self.follow::<ResourceClaimTemplate>(Kind::ResourceClaimTemplate).boxed(),
                self.follow::<PersistentVolumeClaim>(Kind::PersistentVolumeClaim).boxed(),
                self.follow::<PersistentVolume>(Kind::PersistentVolume).boxed(),
                self.follow::<Pod>(Kind::Pod).boxed(),
            )
        };
        shutdown.run_until_cancelled(all).await;
    }

    async fn follow<K>(&self, kind: Kind)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Into<Object> + 'static,
    {
        self.follow_api(Api::<K>::all(self.client.clone()), kind, |object| Ok(object.into())).await;
    }

    /// Kinds of which little is read.
    async fn follow_as<K: DeserializeOwned + Into<Object>>(&self, kind: Kind, group: &str, name: &str) {
        let served = GroupVersionKind::gvk(group, "v1", name);
        let api = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&served));
        self.follow_api(api, kind, read::<K>).await;
    }

    async fn follow_where_served(&self, wanted: &MayBeServed) {
        loop {
            for version in wanted.versions {
                let kind = GroupVersionKind::gvk(wanted.group, version, wanted.name);
                let api: Api<DynamicObject> =
                    Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
                match api.list(&ListParams::default().limit(1)).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => continue,
                    _ => return self.follow_api(api, wanted.kind, wanted.read).await,
                }
            }
            if self.seen.send(Seen::Complete(wanted.kind)).await.is_err() {
                return;
            }
            tokio::time::sleep(wanted.look_every).await;
        }
    }

    async fn follow_api<K>(
        &self,
        api: Api<K>,
        kind: Kind,
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
        let begin = || Box::pin(watcher(api.clone(), config.clone()).default_backoff());
        let mut events = begin();
        let mut anew = self.claims_asked.clone();
        let mut asked_at = self.clock.now();
        loop {
            let event = tokio::select! {
                event = events.try_next() => event,
                Ok(()) = anew.changed(), if kind == Kind::ResourceClaim => {
                    events = begin();
                    continue;
                }
            };
            let event = match event {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(error) => {
                    // An expired watch is part of the protocol: a new list follows.
                    if !told && !matches!(error, watcher::Error::WatchError(ref status) if status.code == 410)
                    {
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
                    asked_at = self.clock.now();
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
                    if self.seen.send(Seen::Change(Observation::Deleted(kind, key))).await.is_err() {
                        return;
                    }
                    continue;
                }
                watcher::Event::InitDone => {
                    for (key, _) in known.extract_if(|_, seen| *seen != list).collect::<Vec<_>>() {
                        if self.seen.send(Seen::Change(Observation::Deleted(kind, key))).await.is_err() {
                            return;
                        }
                    }
                    if self.seen.send(Seen::Complete(kind)).await.is_err() {
                        return;
                    }
                    let all = Seen::Change(Observation::ClaimsListed { asked_at });
                    if kind == Kind::ResourceClaim && self.seen.send(all).await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            match applied {
                Ok(object) => {
                    if self.seen.send(Seen::Change(Observation::Applied(Box::new(object)))).await.is_err() {
                        return;
                    }
                }
                Err(error) => tracing::warn!(?kind, %error, "an object cannot be read; it counts as absent"),
            }
        }
    }
}

/// A rule of any version as one of v1.
fn taint_rule(object: DynamicObject) -> Result<Object, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = "resource.k8s.io/v1".into();
    value["kind"] = "DeviceTaintRule".into();
    Ok(serde_json::from_value::<DeviceTaintRule>(value)?.into())
}

/// What is needed of an object that is read in any of its versions.
fn read<K: DeserializeOwned + Into<Object>>(object: DynamicObject) -> Result<Object, serde_json::Error> {
    Ok(serde_json::from_value::<K>(serde_json::to_value(object)?)?.into())
}
