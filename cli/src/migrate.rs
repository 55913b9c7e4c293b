//! From another driver to this one: its settings in our values, GpuPools and DeviceClasses, and the steps from node to node.

mod device_plugin;
mod gpu_operator;
mod layouts;
mod nvidia_dra;
mod release;
mod resources;
mod sharing;
mod steps;
mod values;
mod workloads;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use tessera_api::gpu_pool::GpuPoolSpec;
use tessera_cluster::{Key, Objects};

use crate::arguments::Origin;
use crate::foreign::Foreign;

pub use steps::{Step, Steps};
pub use workloads::Workload;

/// Why a migration cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// Nothing of the driver was found.
    #[error(
        "{driver} was not found: no helm release of {charts}, and no {also}. With -f, give helm's Secrets (kubectl \
         get secrets -A -l owner=helm,status=deployed -o yaml), ConfigMaps, DaemonSets and nodes"
    )]
    Nothing {
        /// The driver, in words.
        driver: &'static str,
        /// Its charts.
        charts: String,
        /// Other objects looked for.
        also: &'static str,
    },
    /// Several releases of one driver.
    #[error("there are several: {}; choose one with -n NAMESPACE", .0.join("; "))]
    Several(Vec<String>),
    /// A Secret of helm cannot be read.
    #[error("Secret {secret} is not a helm release: {reason}")]
    Damaged {
        /// `namespace/name`
        secret: String,
        /// Why.
        reason: String,
    },
    /// A configuration cannot be read.
    #[error("{place}: {reason}")]
    Configuration {
        /// ConfigMap and key.
        place: String,
        /// Why.
        reason: String,
    },
}

/// Inputs from the cluster.
#[derive(Debug, Clone, Copy)]
pub struct Known<'k> {
    /// Nodes, pods, claims, classes.
    pub objects: &'k Objects,
    /// Objects of the other driver.
    pub foreign: &'k Foreign,
    /// The namespace to look in, if named.
    pub namespace: Option<&'k str>,
}

/// A setting not carried over, or changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// The affected object: a value, a ConfigMap, a node.
    pub about: String,
    /// Effect of the migration.
    pub what: String,
}

/// The full report.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Where from, in words.
    pub from: &'static str,
    /// Objects found of the other driver.
    pub found: Vec<String>,
    /// Values of our chart.
    pub values: Value,
    /// GpuPools.
    pub pools: Vec<Value>,
    /// DeviceClasses not created by the chart.
    pub classes: Vec<Value>,
    /// Settings not carried over, or changed.
    pub notes: Vec<Note>,
    /// Workloads requesting cards, and their future requests.
    pub workloads: Vec<Workload>,
    /// Steps of the migration.
    pub steps: Steps,
}

/// Results collected so far.
#[derive(Debug, Default)]
struct Draft {
    found: Vec<String>,
    values: values::OurValues,
    pools: Vec<Value>,
    classes: Vec<Value>,
    notes: Vec<Note>,
}

impl Draft {
    fn plan(self, from: &'static str, workloads: Vec<Workload>, steps: Steps) -> Plan {
        let Draft { found, values, pools, classes, notes } = self;
        Plan { from, found, values: values.finish(), pools, classes, notes, workloads, steps }
    }

    fn note(&mut self, about: impl Into<String>, what: impl Into<String>) {
        let note = Note { about: about.into(), what: what.into() };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds a pool, whose spec must be one.
    fn pool(&mut self, name: &str, spec: Value) -> Result<(), MigrateError> {
        GpuPoolSpec::decode(&spec).map_err(|error| MigrateError::Configuration {
            place: format!("GpuPool {name}"),
            reason: error.to_string(),
        })?;
        self.pools.push(json!({
            "apiVersion": "gpu.tessera.dev/v1alpha1",
            "kind": "GpuPool",
            "metadata": { "name": name },
            "spec": spec,
        }));
        Ok(())
    }
}

/// Makes the plan.
///
/// # Errors
/// See [`MigrateError`].
pub fn plan(from: Origin, known: Known<'_>) -> Result<Plan, MigrateError> {
    match from {
        Origin::NvidiaDra => nvidia_dra::plan(known),
        Origin::DevicePlugin => device_plugin::plan(known),
        Origin::GpuOperator => gpu_operator::plan(known),
    }
}

/// The labels of the nodes, by name.
fn labels(known: Known<'_>) -> BTreeMap<&str, BTreeMap<&str, &str>> {
    let nodes = known.objects.nodes.iter();
    nodes
        .map(|(Key { name, .. }, node)| {
            let labels = node.metadata.labels.iter().flatten();
            (name.as_str(), labels.map(|(key, value)| (key.as_str(), value.as_str())).collect())
        })
        .collect()
}

/// A name of an object from any text: lower case, with dashes, at most 63 characters.
fn object_name(text: &str) -> String {
    let plain = text.chars().map(|letter| match letter.to_ascii_lowercase() {
        letter if letter.is_ascii_alphanumeric() => letter,
        _ => '-',
    });
    let plain: String = plain.take(63).collect();
    let plain = plain.trim_matches('-');
    if plain.is_empty() { "cards".to_owned() } else { plain.to_owned() }
}
