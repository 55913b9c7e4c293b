//! GpuQuotas, reduced to the fields used for decisions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tessera_api::GpuQuotaSpec;
use tessera_api::gpu_quota::GpuQuotaStatus;

/// A GpuQuota.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GpuQuota {
    /// Its metadata, with the generation.
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(deserialize_with = "checked")]
    pub spec: GpuQuotaSpec,
    /// The status as observed; not kept in a cluster.
    #[serde(deserialize_with = "readable")]
    pub status: Option<GpuQuotaStatus>,
}

/// A spec with a value out of range makes the object unreadable, as an unknown field does.
fn checked<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GpuQuotaSpec, D::Error> {
    GpuQuotaSpec::decode(&Value::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// An unreadable status counts as absent: the spec holds all the same.
fn readable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<GpuQuotaStatus>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use serde_json::json;

    use super::*;
    use crate::{Cluster, Key, Kind};

    /// Nobody waits for the controller's own writes, nor for other fields of a namespace.
    #[test]
    fn only_spec_and_labels_are_changes() {
        let mut cluster = Cluster::default();
        let quota = |weight: u32, waiting: u32, version: &str| -> GpuQuota {
            serde_json::from_value(json!({
                "metadata": { "name": "vision", "generation": 1, "resourceVersion": version },
                "spec": { "weight": weight }, "status": { "waiting": waiting },
            }))
            .unwrap()
        };
        assert!(cluster.apply(quota(1, 0, "1")).unwrap());
        assert!(!cluster.apply(quota(1, 7, "2")).unwrap());
        assert!(cluster.apply(quota(2, 7, "3")).unwrap());
        let namespace = |team: &str, phase: &str| -> Namespace {
            serde_json::from_value(json!({
                "metadata": { "name": "a", "labels": { "team": team } }, "status": { "phase": phase },
            }))
            .unwrap()
        };
        assert!(cluster.apply(namespace("vision", "Active")).unwrap());
        assert!(!cluster.apply(namespace("vision", "Terminating")).unwrap());
        assert!(cluster.apply(namespace("nlp", "Terminating")).unwrap());
        assert_eq!(cluster.objects().namespaces[&Key::cluster("a")]["team"], "nlp");
        cluster.delete(Kind::Namespace, &Key::cluster("a"));
        cluster.delete(Kind::GpuQuota, &Key::cluster("vision"));
        assert!(cluster.objects().namespaces.is_empty() && cluster.objects().quotas.is_empty());
    }

    #[test]
    fn a_quota_with_a_wrong_spec_cannot_be_read() {
        let quota = |weight: u32| {
            serde_json::from_value::<GpuQuota>(json!({
                "apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuQuota", "metadata": { "name": "vision" },
                "spec": { "weight": weight }, "status": { "waiting": 3 },
            }))
        };
        assert_eq!(quota(2).unwrap().spec.weight, 2);
        let odd: GpuQuota = serde_json::from_value(json!({ "status": { "waiting": "many" } })).unwrap();
        assert_eq!(odd.status, None);
        assert_eq!(quota(0).unwrap_err().to_string(), "weight: must be 1 or more");
    }
}
