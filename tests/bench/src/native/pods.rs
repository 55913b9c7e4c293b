//! Pods for kube-scheduler alone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};
use tessera_api::{DeviceType, attribute};
use tessera_harness::Cluster;
use tokio::time::timeout_at;

use super::fleet::{Fleet, Published, text_of};

/// The longest wait for pods created together, and for all pods created one after the other.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Requests at once.
const AT_ONCE: usize = 32;

/// The label of pods and their claims.
const LABEL: &str = "bench=native";

/// The devices of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// A whole card.
    Card,
    /// The smallest partition.
    Partition,
    /// A share by MPS.
    Share,
    /// Four cards, linked where the driver reports links.
    FourCards,
}

impl Asked {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Card, Self::Partition, Self::Share, Self::FourCards];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Card => "a whole card",
            Self::Partition => "a partition",
            Self::Share => "a share",
            Self::FourCards => "four linked cards",
        }
    }

    /// The counterpart on a driver with whole cards alone.
    pub fn compared_with(self) -> Self {
        if self == Self::FourCards { self } else { Self::Card }
    }

    /// How many pods fit on so many free cards.
    pub fn fit(self, free_cards: usize) -> usize {
        if self == Self::FourCards { free_cards / 4 } else { free_cards }
    }

    /// `devices` of the claim's spec; `None` where nodes offer no such thing.
    fn devices(self, fleet: &Fleet) -> Option<Value> {
        let driver = fleet.driver;
        let first = |kind: DeviceType| {
            fleet.devices.iter().find(|device| text_of(device, attribute::TYPE) == Some(kind.as_str()))
        };
        let (mut exactly, mut constraints) = (json!({ "deviceClassName": driver }), json!([]));
        match self {
            Self::Card => {}
            Self::Partition => {
                let profile = text_of(first(DeviceType::Mig)?, attribute::PROFILE)?;
                let expression = format!("device.attributes[\"{driver}\"].profile == \"{profile}\"");
                exactly["selectors"] = json!([{ "cel": { "expression": expression } }]);
                exactly["deviceClassName"] = format!("mig.{driver}").into();
            }
            Self::Share => {
                first(DeviceType::Mps)?;
                exactly["deviceClassName"] = format!("mps.{driver}").into();
            }
            Self::FourCards => {
                exactly["count"] = 4.into();
                if fleet.published != Published::Plain {
                    let group = attribute::NVLINK_GROUP_4;
                    fleet.cards().find(|card| text_of(card, group).is_some())?;
                    constraints =
                        json!([{ "requests": ["gpu"], "matchAttribute": format!("{driver}/{group}") }]);
                }
            }
        }
        Some(json!({ "requests": [{ "name": "gpu", "exactly": exactly }], "constraints": constraints }))
    }

    fn template(self) -> String {
        self.words().replace(' ', "-")
    }
}

/// Makes pods.
pub struct Pods {
    pods: Api<Pod>,
    claims: Api<ResourceClaim>,
}

/// Pods created together.
pub struct Started {
    /// From the creation of each bound pod to its binding.
    pub times: Vec<Duration>,
    /// From the first creation to the last binding, or to the end of [`PATIENCE`].
    pub took: Duration,
}

impl Pods {
    /// Makes the claim templates, and returns the requests with devices.
    pub async fn new(cluster: &Cluster, fleet: &Fleet) -> Result<(Self, Vec<Asked>)> {
        let client = cluster.client().await?;
        let templates: Api<ResourceClaimTemplate> = Api::default_namespaced(client.clone());
        let mut offered = Vec::new();
        for asked in Asked::ALL {
            let Some(devices) = asked.devices(fleet) else { continue };
            let (label, value) = LABEL.split_once('=').unwrap_or_default();
            let template = json!({ "metadata": { "name": asked.template() },
                "spec": { "metadata": { "labels": { label: value } }, "spec": { "devices": devices } } });
            templates.create(&PostParams::default(), &serde_json::from_value(template)?).await?;
            offered.push(asked);
        }
        let pods = Api::default_namespaced(client.clone());
        Ok((Self { pods, claims: Api::default_namespaced(client) }, offered))
    }

    /// Creates so many pods at once and waits until they are bound.
    pub async fn start(&self, asked: Asked, count: usize) -> Result<Started> {
        let version = self.pods.list_metadata(&ListParams::default()).await?.metadata.resource_version;
        let begun = Instant::now();
        let making = futures::stream::iter(0..count).map(|_| async {
            let created = Instant::now();
            let pod = self.pods.create(&PostParams::default(), &pod(asked)?).await?;
            anyhow::Ok((pod.name_any(), created))
        });
        let making = making.buffer_unordered(AT_ONCE).try_collect::<HashMap<String, Instant>>();
        let seeing = self.bound(count, version.unwrap_or_default(), begun + PATIENCE);
        let (created, bound) = tokio::try_join!(making, seeing)?;
        let is_whole = bound.len() == count;
        let last = bound.values().max().filter(|_| is_whole).copied().unwrap_or(begun + PATIENCE);
        let times = bound.iter().filter_map(|(pod, at)| Some(*at - *created.get(pod)?)).collect();
        Ok(Started { times, took: last - begun })
    }

    /// When each of so many pods had its node, as far as they have by then.
    async fn bound(
        &self,
        count: usize,
        mut version: String,
        end: Instant,
    ) -> Result<HashMap<String, Instant>> {
        let parameters = WatchParams::default().labels(LABEL).timeout(290);
        let mut bound: HashMap<String, Instant> = HashMap::new();
        while bound.len() < count && Instant::now() < end {
            // An API server with much to do ends watches before their time.
            let mut events = self.pods.watch(&parameters, &version).await?.boxed();
            while bound.len() < count
                && let Ok(event) = timeout_at(end.into(), events.try_next()).await
                && let Some(event) = event?
            {
                let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else {
                    ensure!(!matches!(event, WatchEvent::Error(_)), "the watch of pods: {event:?}");
                    continue;
                };
                version = pod.resource_version().unwrap_or(version);
                if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                    bound.entry(pod.name_any()).or_insert_with(Instant::now);
                }
            }
        }
        Ok(bound)
    }

    /// Removes all pods, and waits until their claims are gone.
    pub async fn remove(&self) -> Result<()> {
        let all = ListParams::default().labels(LABEL);
        self.pods.delete_collection(&DeleteParams::default().grace_period(0), &all).await?;
        let end = Instant::now() + PATIENCE;
        while !self.claims.list_metadata(&all).await?.items.is_empty() {
            ensure!(Instant::now() < end, "the claims of pods that are gone stay");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

fn pod(asked: Asked) -> Result<Pod> {
    let (label, value) = LABEL.split_once('=').unwrap_or_default();
    serde_json::from_value(json!({
        "metadata": { "generateName": "pod-", "labels": { label: value } },
        "spec": {
            "containers": [{ "name": "c", "image": "none", "resources": { "claims": [{ "name": "gpu" }] } }],
            "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": asked.template() }],
        },
    }))
    .context("a pod")
}
