//! Watches of all kinds: passes on every object as received, without keeping any.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use kube::api::{DynamicObject, GroupVersionKind, ListParams};
use kube::discovery::ApiResource;
use kube::runtime::WatchStreamExt as _;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tessera_api::API_GROUP;
use tessera_cluster::kueue::{AdmissionCheck, ResourceFlavor, Workload};
use tessera_cluster::workloads::{DisruptionBudget, Job, JobSet, LeaderWorkerSet, PodGroup};
use tessera_cluster::{GpuQuota, Key, Kind, Object, holds_of};
use tessera_decide::Observation;
use tessera_kube_util::error_text::with_causes;
use tessera_kube_util::objects::{Event, Name, Page, Unreadable, from_json, watch};
use tokio::sync::{mpsc, watch as value};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// An event of a watch.
#[derive(Debug)]
pub enum Seen {
    /// An object changed.
    Change(Observation),
    /// All existing objects of the kind were delivered. Sent again after every reconnection with a new list.
    Complete(Kind),
}

/// The watched kinds.
pub const KINDS: [Kind; 19] = [
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
    Kind::GpuQuota,
    Kind::Namespace,
    Kind::Workload,
    Kind::AdmissionCheck,
    Kind::ResourceFlavor,
];

/// Objects per page. A ResourceSlice takes some 100 KiB while being read, so few are read at once.
const SLICES_PER_PAGE: u32 = 50;
const OBJECTS_PER_PAGE: u32 = 500;

/// Reads an object from JSON.
type Read = fn(&[u8]) -> Result<Object, serde_json::Error>;

/// A kind missing in some clusters, in one of several API versions.
struct MayBeServed {
    kind: Kind,
    group: &'static str,
    /// Newest first. The fields read have the same form in all of them.
    versions: &'static [&'static str],
    name: &'static str,
    /// How often to check whether the API serves the kind.
    look_every: Duration,
    read: Read,
}

/// Kueue's API.
pub(crate) const KUEUE: &str = "kueue.x-k8s.io";
pub(crate) const KUEUES_VERSIONS: &[&str] = &["v1beta2", "v1beta1"];

const MAY_BE_SERVED: [MayBeServed; 8] = [
    MayBeServed {
        kind: Kind::DeviceTaintRule,
        group: "resource.k8s.io",
        versions: &["v1", "v1beta2", "v1alpha3"],
        name: "DeviceTaintRule",
        // Serving this kind needs a restart of the API server.
        look_every: Duration::from_secs(600),
        read: taint_rule,
    },
    MayBeServed {
        kind: Kind::JobSet,
        group: "jobset.x-k8s.io",
        versions: &["v1alpha2"],
        name: "JobSet",
        look_every: Duration::from_secs(60),
        read: read_as::<JobSet>,
    },
    MayBeServed {
        kind: Kind::LeaderWorkerSet,
        group: "leaderworkerset.x-k8s.io",
        versions: &["v1"],
        name: "LeaderWorkerSet",
        look_every: Duration::from_secs(60),
        read: read_as::<LeaderWorkerSet>,
    },
    MayBeServed {
        kind: Kind::PodGroup,
        group: "scheduling.k8s.io",
        versions: &["v1beta1", "v1alpha3", "v1alpha2"],
        name: "PodGroup",
        look_every: Duration::from_secs(600),
        read: read_as::<PodGroup>,
    },
    MayBeServed {
        kind: Kind::Workload,
        group: KUEUE,
        versions: KUEUES_VERSIONS,
        name: "Workload",
        look_every: Duration::from_secs(60),
        read: read_as::<Workload>,
    },
    MayBeServed {
        kind: Kind::AdmissionCheck,
        group: KUEUE,
        versions: KUEUES_VERSIONS,
        name: "AdmissionCheck",
        look_every: Duration::from_secs(60),
        read: read_as::<AdmissionCheck>,
    },
    MayBeServed {
        kind: Kind::ResourceFlavor,
        group: KUEUE,
        versions: KUEUES_VERSIONS,
        name: "ResourceFlavor",
        look_every: Duration::from_secs(60),
        read: read_as::<ResourceFlavor>,
    },
    // Of the chart, which may be told to install no CRDs.
    MayBeServed {
        kind: Kind::GpuQuota,
        group: API_GROUP,
        versions: &["v1alpha1"],
        name: "GpuQuota",
        look_every: Duration::from_secs(60),
        read: read_as::<GpuQuota>,
    },
];

/// The watches of all kinds.
pub struct Watches {
    /// The API server.
    pub client: Client,
    /// Receives the events.
    pub seen: mpsc::Sender<Seen>,
    /// The loop's clock.
    pub clock: Clock,
    /// Whether GpuQuotas count; else there seem to be none.
    pub follows_quotas: bool,
    /// Changes when the watch of claims is to be restarted.
    pub claims_asked: value::Receiver<u64>,
}

impl Watches {
    /// Watches until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let all = async {
            // Boxed: all of them together would be large for a thread's stack.
            tokio::join!(
                self.follow::<DeviceClass>(Kind::DeviceClass).boxed(),
                self.follow_as::<Job>(Kind::Job, "batch", "Job").boxed(),
                self.follow_as::<DisruptionBudget>(Kind::DisruptionBudget, "policy", "PodDisruptionBudget")
                    .boxed(),
                join_all(MAY_BE_SERVED.iter().map(|kind| self.follow_where_served(kind).boxed())),
                self.follow::<Namespace>(Kind::Namespace).boxed(),
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
        K: Resource<DynamicType = ()> + DeserializeOwned + Into<Object>,
    {
        self.follow_url(Api::<K>::all(self.client.clone()).resource_url(), kind, read_as::<K>).await;
    }

    /// Watches a kind of which few fields are read.
    async fn follow_as<K: DeserializeOwned + Into<Object>>(&self, kind: Kind, group: &str, name: &str) {
        let served = GroupVersionKind::gvk(group, "v1", name);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&served));
        self.follow_url(api.resource_url(), kind, read_as::<K>).await;
    }

    async fn follow_where_served(&self, wanted: &MayBeServed) {
        if wanted.kind == Kind::GpuQuota && !self.follows_quotas {
            let _ = self.seen.send(Seen::Complete(wanted.kind)).await;
            return;
        }
        loop {
            for version in wanted.versions {
                let kind = GroupVersionKind::gvk(wanted.group, version, wanted.name);
                let api: Api<DynamicObject> =
                    Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
                match Page::get(&self.client, api.resource_url(), &ListParams::default().limit(1)).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => continue,
                    _ => return self.follow_url(api.resource_url(), wanted.kind, wanted.read).await,
                }
            }
            if self.seen.send(Seen::Complete(wanted.kind)).await.is_err() {
                return;
            }
            tokio::time::sleep(wanted.look_every).await;
        }
    }

    /// Watches all objects of a kind, until the receiver is dropped.
    async fn follow_url(&self, url: &str, kind: Kind, read: Read) {
        let per_page = if kind == Kind::ResourceSlice { SLICES_PER_PAGE } else { OBJECTS_PER_PAGE };
        let begin = || Box::pin(watch(self.client.clone(), url.to_owned(), per_page, read).default_backoff());
        let mut events = begin();
        let mut known = Known::new(kind);
        let mut told = false;
        let mut anew = self.claims_asked.clone();
        let mut asked_at = self.clock.now();
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                Ok(()) = anew.changed(), if kind == Kind::ResourceClaim => {
                    events = begin();
                    continue;
                }
            };
            let seen = match event {
                None => return,
                Some(Err(error)) => {
                    if !told && !error.is_expired() {
                        tracing::warn!(?kind, "a watch broke off; trying again: {}", with_causes(&error));
                        told = true;
                    }
                    continue;
                }
                Some(Ok(Event::Init)) => {
                    asked_at = self.clock.now();
                    known.list += 1;
                    continue;
                }
                Some(Ok(Event::InitApply(name, object) | Event::Apply(name, object))) => {
                    vec![known.see(name, object)]
                }
                Some(Ok(Event::Delete(name))) => vec![known.mark_gone(&key_of(&name))],
                Some(Ok(Event::InitDone)) => known.complete(asked_at),
            };
            told = false;
            for seen in seen {
                if self.seen.send(seen).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The existing objects of a kind.
struct Known {
    kind: Kind,
    /// With the number of the list in or after which each was last seen. Objects missing in a new list are gone.
    objects: HashMap<Key, u32>,
    list: u32,
    /// Unreadable objects with their uids, to report each once.
    unreadable: HashMap<Key, String>,
}

impl Known {
    fn new(kind: Kind) -> Self {
        Known { kind, objects: HashMap::new(), list: 0, unreadable: HashMap::new() }
    }

    fn see(&mut self, name: Name, object: Result<Object, Unreadable>) -> Seen {
        let (kind, key) = (self.kind, key_of(&name));
        self.objects.insert(key.clone(), self.list);
        Seen::Change(match object {
            Ok(object) => {
                self.unreadable.remove(&key);
                Observation::Applied(Box::new(object))
            }
            Err(unreadable) => {
                let why = unreadable.to_string();
                if self.unreadable.insert(key.clone(), name.uid.clone()).is_none_or(|told| told != name.uid) {
                    let name = key.to_string();
                    tracing::warn!(?kind, name, error = why, "an object cannot be read; it counts as absent");
                }
                let holds = (kind == Kind::ResourceClaim).then(|| holds_of(&unreadable.json)).flatten();
                Observation::Unreadable { kind, key, why, holds: holds.map(Box::new) }
            }
        })
    }

    fn mark_gone(&mut self, key: &Key) -> Seen {
        self.objects.remove(key);
        self.unreadable.remove(key);
        Seen::Change(Observation::Deleted(self.kind, key.clone()))
    }

    /// A list requested at `asked_at` is complete. Objects not in the list are gone.
    fn complete(&mut self, asked_at: Duration) -> Vec<Seen> {
        let gone = self.objects.iter().filter(|(_, list)| **list != self.list);
        let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
        let mut seen: Vec<Seen> = gone.iter().map(|key| self.mark_gone(key)).collect();
        seen.push(Seen::Complete(self.kind));
        if self.kind == Kind::ResourceClaim {
            seen.push(Seen::Change(Observation::ClaimsListed { asked_at }));
        }
        seen
    }
}

fn key_of(name: &Name) -> Key {
    Key::new(&name.namespace, &name.name)
}

/// Reads a rule of any version as v1.
fn taint_rule(json: &[u8]) -> Result<Object, serde_json::Error> {
    let mut value: serde_json::Value = from_json(json)?;
    value["apiVersion"] = "resource.k8s.io/v1".into();
    value["kind"] = "DeviceTaintRule".into();
    Ok(serde_json::from_value::<DeviceTaintRule>(value)?.into())
}

/// Reads the needed fields of an object, in any of its versions.
fn read_as<K: DeserializeOwned + Into<Object>>(json: &[u8]) -> Result<Object, serde_json::Error> {
    Ok(from_json::<K>(json)?.into())
}

#[cfg(test)]
mod tests;
