//! Settings of another driver: from helm's Secret for its release, else from its DaemonSet.
//!
//! The Secret's form is helm's own (pkg/storage/driver): JSON, gzip, base64, and base64 once more as for all Secrets.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};

use super::MigrateError;
use crate::foreign::{self, Foreign};

/// Limit of an unpacked release, in bytes: a Secret has at most 1 MiB, and a hostile one unpacks to a thousand times as much.
const LARGEST: u64 = 64 << 20;

/// Names of charts for one driver, with the part of the image name used in its DaemonSet.
pub struct Charts {
    /// The charts' names, in the order of their age.
    pub names: &'static [&'static str],
    /// Part of the name of the DaemonSet's image.
    pub image: &'static str,
    /// The DaemonSet's container with the settings.
    pub container: &'static str,
}

/// A release of helm, or a substitute.
#[derive(Debug)]
pub struct Release {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Chart and version: `nvidia-device-plugin 0.19.0`; `None` where no helm release is known.
    pub chart: Option<String>,
    /// Values set by the user.
    pub said: Value,
    /// With the chart's defaults.
    pub all: Value,
}

impl Release {
    /// A value, by its path; null counts as none.
    pub fn at(&self, path: &str) -> Option<&Value> {
        at(&self.all, path)
    }

    /// A non-empty text.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.at(path).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// A switch.
    pub fn is_on(&self, path: &str) -> bool {
        self.at(path) == Some(&Value::Bool(true))
    }

    /// `release r in namespace n (chart 1.2)`.
    pub fn told(&self) -> String {
        match &self.chart {
            Some(chart) => format!("release {} in namespace {}, chart {chart}", self.name, self.namespace),
            None => {
                format!("DaemonSet {} in namespace {}, without a helm release", self.name, self.namespace)
            }
        }
    }
}

/// A value, by its path of keys with dots between.
pub fn at<'v>(values: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(values, |at, key| at.get(key)).filter(|value| !value.is_null())
}

/// The release of one of these charts.
///
/// # Errors
/// A Secret of helm is damaged, or there are several releases.
pub fn find(foreign: &Foreign, charts: &Charts, only: Option<&str>) -> Result<Option<Release>, MigrateError> {
    let mut found: Vec<(u64, Release)> = Vec::new();
    let of_helm = |secret: &&Value| {
        foreign::text(secret, "/type") == Some("helm.sh/release.v1")
            && only.is_none_or(|namespace| namespace == foreign::namespace(secret))
    };
    for secret in foreign.secrets.iter().filter(of_helm) {
        let status = foreign::text(secret, "/metadata/labels/status");
        if status.is_some_and(|status| status != "deployed") {
            continue;
        }
        let decoded = decode(secret)?;
        if charts.names.contains(&foreign::text(&decoded, "/chart/metadata/name").unwrap_or_default()) {
            let version = decoded.get("version").and_then(Value::as_u64).unwrap_or_default();
            let release = release(&decoded);
            match found
                .iter_mut()
                .find(|(_, known)| (&known.name, &known.namespace) == (&release.name, &release.namespace))
            {
                Some(known) if known.0 >= version => {}
                Some(known) => *known = (version, release),
                None => found.push((version, release)),
            }
        }
    }
    if found.len() > 1 {
        return Err(MigrateError::Several(found.iter().map(|(_, release)| release.told()).collect()));
    }
    let of_helm = found.pop().map(|(_, release)| release);
    Ok(of_helm.or_else(|| of_daemon_set(foreign, charts, only)))
}

fn decode(secret: &Value) -> Result<Value, MigrateError> {
    let damaged = |reason: String| MigrateError::Damaged {
        secret: format!("{}/{}", foreign::namespace(secret), foreign::name(secret)),
        reason,
    };
    let outer =
        foreign::text(secret, "/data/release").ok_or_else(|| damaged("it has no data.release".to_owned()))?;
    let inner = STANDARD.decode(outer).map_err(|error| damaged(error.to_string()))?;
    let packed = STANDARD.decode(inner.trim_ascii()).map_err(|error| damaged(error.to_string()))?;
    // Releases of the first versions of helm 3 are not packed.
    let mut text = Vec::new();
    if packed.starts_with(&[0x1f, 0x8b]) {
        GzDecoder::new(packed.as_slice())
            .take(LARGEST + 1)
            .read_to_end(&mut text)
            .map_err(|error| damaged(error.to_string()))?;
        if text.len() as u64 > LARGEST {
            return Err(damaged("it unpacks to more than 64 MiB".to_owned()));
        }
    } else {
        text = packed;
    }
    serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))
}

fn release(decoded: &Value) -> Release {
    let text = |pointer| foreign::text(decoded, pointer).unwrap_or_default().to_owned();
    let said =
        decoded.get("config").filter(|config| config.is_object()).cloned().unwrap_or_else(|| json!({}));
    let mut all = decoded.pointer("/chart/values").filter(|values| values.is_object()).cloned();
    let all = match &mut all {
        Some(all) => {
            merge(all, &said);
            std::mem::take(all)
        }
        None => said.clone(),
    };
    Release {
        name: text("/name"),
        namespace: text("/namespace"),
        chart: Some(format!("{} {}", text("/chart/metadata/name"), text("/chart/metadata/version"))),
        said,
        all,
    }
}

/// The user's values override the defaults, key by key; null removes a key.
fn merge(defaults: &mut Value, said: &Value) {
    let (Some(defaults), Some(said)) = (defaults.as_object_mut(), said.as_object()) else { return };
    for (key, value) in said {
        match defaults.get_mut(key) {
            _ if value.is_null() => drop(defaults.remove(key)),
            Some(known) if known.is_object() && value.is_object() => merge(known, value),
            _ => drop(defaults.insert(key.clone(), value.clone())),
        }
    }
}

/// Settings of a DaemonSet, in the form of values.
fn of_daemon_set(foreign: &Foreign, charts: &Charts, only: Option<&str>) -> Option<Release> {
    // The GPU Operator's DaemonSets take their settings from its ClusterPolicy.
    let is_operators = |set: &Value| {
        foreign::list(set, "/metadata/ownerReferences")
            .iter()
            .any(|owner| foreign::text(owner, "/kind") == Some("ClusterPolicy"))
    };
    let set = foreign.daemon_sets.iter().find(|set| {
        foreign::images(set).any(|image| image.contains(charts.image))
            && !is_operators(set)
            && only.is_none_or(|namespace| namespace == foreign::namespace(set))
    })?;
    let pod = set.pointer("/spec/template/spec")?;
    let containers = foreign::list(pod, "/containers");
    let told =
        containers.iter().find(|container| foreign::text(container, "/name") == Some(charts.container));
    let variables =
        told.or(containers.first()).map(|container| foreign::list(container, "/env")).unwrap_or_default();
    let variable = |name: &str| {
        let found = variables.iter().find(|variable| foreign::text(variable, "/name") == Some(name))?;
        foreign::text(found, "/value")
    };
    let mut values = Map::new();
    for (name, key) in [
        ("NVIDIA_DRIVER_ROOT", "nvidiaDriverRoot"),
        ("MIG_STRATEGY", "migStrategy"),
        ("CONSUMABLE_SHARES", "consumableShares"),
    ] {
        if let Some(text) = variable(name) {
            values.insert(key.to_owned(), text.into());
        }
    }
    if let Some(gates) = variable("FEATURE_GATES") {
        let gates = gates.split(',').filter_map(|gate| gate.split_once('='));
        let gates: Map<String, Value> =
            gates.map(|(name, value)| (name.trim().to_owned(), (value.trim() == "true").into())).collect();
        values.insert("featureGates".to_owned(), gates.into());
    }
    let config_map =
        foreign::list(pod, "/volumes").iter().find_map(|volume| foreign::text(volume, "/configMap/name"));
    if let Some(name) = config_map {
        let sidecar = containers.iter().flat_map(|container| foreign::list(container, "/env"));
        let default = sidecar
            .filter(|variable| foreign::text(variable, "/name") == Some("DEFAULT_CONFIG"))
            .find_map(|variable| foreign::text(variable, "/value"));
        values.insert("config".to_owned(), json!({ "name": name, "default": default }));
    }
    // Under the chart's own keys.
    let mut of_pods = Map::new();
    for key in ["nodeSelector", "imagePullSecrets", "priorityClassName"] {
        if let Some(value) = pod.get(key) {
            of_pods.insert(key.to_owned(), value.clone());
        }
    }
    if charts.names.iter().any(|name| name.contains("dra")) {
        let secrets = of_pods.remove("imagePullSecrets");
        values.extend(secrets.map(|secrets| ("imagePullSecrets".to_owned(), secrets)));
        values.insert("kubeletPlugin".to_owned(), of_pods.into());
    } else {
        values.extend(of_pods);
    }
    let values = Value::Object(values);
    Some(Release {
        name: foreign::name(set).to_owned(),
        namespace: foreign::namespace(set).to_owned(),
        chart: None,
        said: values.clone(),
        all: values,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_over_defaults_key_by_key() {
        let mut all = json!({ "a": { "b": 1, "c": 2 }, "d": [1], "e": { "f": 1 }, "g": 1 });
        merge(&mut all, &json!({ "a": { "b": 3 }, "d": [2, 3], "e": "text", "g": null, "h": { "i": 1 } }));
        assert_eq!(all, json!({ "a": { "b": 3, "c": 2 }, "d": [2, 3], "e": "text", "h": { "i": 1 } }));
        assert_eq!(at(&all, "a.c"), Some(&json!(2)));
        assert_eq!(at(&all, "a.c.x"), None);
    }
}
