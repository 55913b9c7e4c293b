//! GpuQuotas of a simulation.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tessera_cluster::{GpuQuota, Object};

/// Label of every namespace with its name, set by the API server.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// GpuQuotas, and the labels of namespaces.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    quotas: Vec<GpuQuota>,
    /// By name of the namespace.
    labels: BTreeMap<String, BTreeMap<String, String>>,
}

impl Quotas {
    /// These quotas, with the labels of namespaces by their names. Other namespaces have the label of their name only.
    #[must_use]
    pub fn new(quotas: Vec<GpuQuota>, labels: BTreeMap<String, BTreeMap<String, String>>) -> Self {
        Self { quotas, labels }
    }

    /// Whether there is no quota.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.quotas.is_empty()
    }

    /// Adds the quotas of another workload.
    pub(super) fn add(&mut self, other: Self) {
        self.quotas.extend(other.quotas);
        self.labels.extend(other.labels);
    }

    /// The quotas, and the namespaces, those in `used` among them. Nothing without quotas.
    pub(super) fn objects(&self, used: BTreeSet<&str>) -> Vec<Object> {
        if self.is_empty() {
            return Vec::new();
        }
        let namespaces: BTreeSet<&str> =
            used.into_iter().chain(self.labels.keys().map(String::as_str)).collect();
        let namespace = |name: &str| {
            let mut labels = self.labels.get(name).cloned().unwrap_or_default();
            labels.insert(NAME_LABEL.to_owned(), name.to_owned());
            let metadata =
                ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
            Object::from(Namespace { metadata, ..Namespace::default() })
        };
        self.quotas.iter().cloned().map(Object::from).chain(namespaces.into_iter().map(namespace)).collect()
    }
}
