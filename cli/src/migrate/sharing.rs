//! Configurations of NVIDIA's device plugin: time-slicing, MPS and the MIG strategy, each a GpuPool.
//!
//! The format: <https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details>

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use super::resources::Resources;
use super::{Draft, Known, MigrateError, labels, object_name};
use crate::foreign;

/// Label choosing a node's configuration.
const CONFIG_LABEL: &str = "nvidia.com/device-plugin.config";

/// The resource of cards.
pub const GPU: &str = "nvidia.com/gpu";

/// Limits of a GpuPool: shares of a card by MPS, and time-slices.
const MOST_SHARES: u32 = 100;
const MOST_SLICES: u32 = 1024;

/// A configuration; fields not about sharing are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginConfig {
    flags: Flags,
    sharing: Sharing,
    resources: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Flags {
    mig_strategy: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Sharing {
    time_slicing: Option<Replicated>,
    mps: Option<Replicated>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Replicated {
    rename_by_default: bool,
    fail_requests_greater_than_one: Option<bool>,
    resources: Vec<ReplicatedResource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReplicatedResource {
    name: String,
    rename: Option<String>,
    replicas: u32,
    devices: Value,
}

/// Configurations by name, and the one for nodes without the label.
#[derive(Debug, Default)]
pub struct Configurations {
    named: BTreeMap<String, PluginConfig>,
    default: Option<String>,
}

impl Configurations {
    /// Reads the configurations of a ConfigMap, or of its source values.
    pub fn read(
        known: Known<'_>,
        namespace: &str,
        config: Option<&Value>,
        draft: &mut Draft,
    ) -> Result<Self, MigrateError> {
        let Some(config) = config else { return Ok(Self::default()) };
        let inline = config.get("map").or_else(|| config.get("data")).and_then(Value::as_object);
        let mut texts: BTreeMap<String, String> = inline
            .into_iter()
            .flatten()
            .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())))
            .collect();
        let mut place = "the values of the release".to_owned();
        if let Some(name) = foreign::text(config, "/name").filter(|_| texts.is_empty()) {
            place = format!("ConfigMap {namespace}/{name}");
            let map = known
                .foreign
                .config_maps
                .iter()
                .find(|map| foreign::name(map) == name && foreign::namespace(map) == namespace);
            match map.and_then(|map| map.get("data")).and_then(Value::as_object) {
                Some(data) => {
                    draft.found.push(place.clone());
                    texts.extend(
                        data.iter()
                            .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned()))),
                    );
                }
                None => draft.note(
                    &place,
                    "not found, or you may not read it: sharing and MIG strategy are not carried over",
                ),
            }
        }
        let mut named = BTreeMap::new();
        for (name, text) in texts {
            let config: PluginConfig = serde_saphyr::from_str(&text).map_err(|error| {
                MigrateError::Configuration { place: format!("{place}, {name}"), reason: first_line(&error) }
            })?;
            named.insert(name, config);
        }
        // As its config-manager falls back: to the one named default, else to the only one.
        let said = foreign::text(config, "/default").map(str::to_owned);
        let fallback = || {
            let only = if named.len() == 1 { named.keys().next() } else { None };
            named.contains_key("default").then(|| "default".to_owned()).or(only.cloned())
        };
        let default = said.or_else(fallback);
        Ok(Self { named, default })
    }

    /// Pools with the same offers, and their resource names. `strategy` is set outside the configurations.
    pub fn carry(
        &self,
        known: Known<'_>,
        strategy: Option<&str>,
        draft: &mut Draft,
    ) -> Result<Resources, MigrateError> {
        let mut resources = Resources::default();
        let plain = PluginConfig::default();
        let default = self.default.as_ref().and_then(|name| Some((name, self.named.get(name)?)));
        match default {
            Some((name, config)) => {
                let offer = config.offer(name, strategy, &mut resources, draft);
                draft.pool(&object_name(name), json!({ "offer": offer }))?;
            }
            None => {
                let offer = plain.offer("nodes", strategy, &mut resources, draft);
                draft.pool("cards", json!({ "offer": offer }))?;
            }
        }
        let chosen: BTreeSet<&str> =
            labels(known).values().filter_map(|labels| labels.get(CONFIG_LABEL).copied()).collect();
        for (name, config) in &self.named {
            let is_default = self.default.as_ref() == Some(name);
            if is_default && !chosen.contains(name.as_str()) {
                continue;
            }
            let offer = config.offer(name, strategy, &mut resources, draft);
            if !is_default {
                let spec = json!({
                    "priority": 10,
                    "nodeSelector": { "matchLabels": { CONFIG_LABEL: name } },
                    "offer": offer,
                });
                draft.pool(&object_name(name), spec)?;
            }
        }
        for name in chosen.into_iter().filter(|name| !self.named.contains_key(*name)) {
            draft.note(
                format!("label {CONFIG_LABEL}={name}"),
                "no such configuration: the nodes offer the same as nodes without the label",
            );
        }
        Ok(resources)
    }
}

fn first_line(error: &impl ToString) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

impl PluginConfig {
    fn offer(
        &self,
        name: &str,
        strategy: Option<&str>,
        resources: &mut Resources,
        draft: &mut Draft,
    ) -> Value {
        let about = format!("configuration {name}");
        if self.resources.as_object().is_some_and(|map| !map.is_empty()) {
            draft.note(
                &about,
                "resources: names by product are not carried over; use a DeviceClass with \
                                extendedResourceName and a selector by productName (docs/installing.md)",
            );
        }
        // A device plugin creates no partitions; existing ones are offered unchanged.
        let mut offer = json!({ "partitioning": { "mode": "None" } });
        let strategy = self.flags.mig_strategy.as_deref().or(strategy);
        match strategy {
            Some("single") => resources.add(GPU, "mig", false),
            Some("mixed") => resources.is_mixed = true,
            _ => {}
        }
        let shared = [("timeSlicing", &self.sharing.time_slicing), ("mps", &self.sharing.mps)];
        let mut is_shared = false;
        for (kind, replicated) in shared {
            let Some(replicated) = replicated else { continue };
            // The device plugin's own default.
            let gets_one = replicated.fail_requests_greater_than_one.unwrap_or(kind == "mps");
            for resource in replicated.resources.iter().filter(|resource| resource.replicas > 1) {
                if resource.name != GPU && resource.name != "gpu" {
                    draft.note(&about, format!("sharing of {} is not carried over: partitions can be shared by MPS, \
                                                with offer.sharing.mps.partitions in a GpuPool (docs/sharing.md)", resource.name));
                    continue;
                }
                if resource.devices.as_array().is_some_and(|list| !list.is_empty()) {
                    draft.note(
                        &about,
                        format!(
                            "{}: the list of devices is not carried over, all cards are shared; \
                                                a GpuPool can select cards by productName or index",
                            resource.name
                        ),
                    );
                }
                is_shared = true;
                let renamed = resource.rename.as_deref().map(|name| match name.contains('/') {
                    true => name.to_owned(),
                    false => format!("nvidia.com/{name}"),
                });
                let renamed =
                    renamed.or_else(|| replicated.rename_by_default.then(|| format!("{GPU}.shared")));
                let ours = if kind == "mps" { "mps" } else { "timeslice" };
                resources.add(renamed.as_deref().unwrap_or(GPU), ours, gets_one);
                let most = if kind == "mps" { MOST_SHARES } else { MOST_SLICES };
                if resource.replicas > most {
                    draft.note(
                        &about,
                        format!("{} shares of a card: at most {most} are offered", resource.replicas),
                    );
                }
                let replicas = resource.replicas.min(most);
                offer["sharing"] = match kind {
                    "mps" => json!({ "mps": { "defaultShares": replicas } }),
                    _ => json!({ "timeSlicing": { "replicas": replicas } }),
                };
                if kind == "mps" {
                    draft.values.set(&["sharing", "mps", "enabled"], true);
                }
            }
        }
        if is_shared {
            offer["wholeCards"] = false.into();
        } else {
            resources.add(GPU, "gpu", false);
        }
        offer
    }
}
