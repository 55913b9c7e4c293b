//! Objects from the cluster or from files, depending on the command line.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Event;
use tessera_api::gpu_pool::GpuPool;
use tessera_api::gpu_quota::GpuQuota;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_cluster::{Key, Objects};

use crate::api_server::{self, ClusterError, Wanted};
use crate::arguments::{ReleaseArguments, SourceArguments};
use crate::files::{self, Besides, Manifests};
use crate::foreign::Foreign;
use crate::output::{CommandError, warn};

/// Objects, and where they come from.
#[derive(Debug)]
pub struct Source {
    /// The objects.
    pub objects: Objects,
    /// GpuPools, if they are wanted; `None` where the API server has no such kind.
    pub pools: Option<BTreeMap<Key, GpuPool>>,
    /// GpuQuotas, if they are wanted; `None` where the API server has no such kind.
    pub quotas: Option<BTreeMap<Key, GpuQuota>>,
    /// Events about objects, in files.
    pub events: Vec<Event>,
    /// Objects of other drivers, if they are wanted.
    pub foreign: Foreign,
    /// Objects creating pods, if wanted: of files alone.
    pub manifests: Manifests,
    /// Namespace of names on the command line.
    pub namespace: String,
    /// The objects of the files alone, if the cluster's were added.
    pub given: Option<Objects>,
    /// Whether anything is from the cluster.
    pub is_live: bool,
    /// The release of the cluster's API server.
    pub kubernetes: Option<KubernetesVersion>,
}

impl Source {
    /// Reads the wanted objects: only from files if these have devices or nodes, else from files and cluster.
    ///
    /// # Errors
    /// Files or cluster could not be read.
    pub fn load(arguments: &SourceArguments, wanted: Wanted) -> Result<Self, CommandError> {
        if arguments.files.is_empty() {
            let loaded = api_server::load(arguments, wanted).map_err(or_files)?;
            warn(&loaded.warnings);
            let api_server::Loaded { objects, pools, quotas, foreign, namespace, kubernetes, .. } = loaded;
            return Ok(Source {
                is_live: true,
                kubernetes,
                given: None,
                manifests: Manifests::default(),
                events: Vec::new(),
                objects,
                pools,
                quotas,
                foreign,
                namespace,
            });
        }
        let default = arguments.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let texts = files::read(&arguments.files, arguments.recursive)?;
        let besides = match wanted {
            Wanted::Migration => Besides::Foreign,
            Wanted::Simulation => Besides::Manifests,
            _ => Besides::Nothing,
        };
        let loaded = files::parse(&texts, &default, besides)?;
        warn(&loaded.warnings);
        let files::Loaded { objects, pools, quotas, events, foreign, manifests, .. } = loaded;
        let events = events.into_values().collect();
        let has_pools = matches!(wanted, Wanted::Pools { .. } | Wanted::Kueue) && !pools.is_empty();
        let has_quotas = wanted == Wanted::Quotas && !quotas.is_empty();
        let is_enough = has_pools || has_quotas || wanted == Wanted::Migration;
        if !objects.slices.is_empty() || !objects.nodes.is_empty() || is_enough {
            return Ok(Source {
                is_live: false,
                kubernetes: None,
                given: None,
                manifests: manifests.unwrap_or_default(),
                foreign: foreign.unwrap_or_default(),
                pools: Some(pools),
                quotas: Some(quotas),
                namespace: default,
                objects,
                events,
            });
        }
        // Files without nodes and devices refer to the cluster's.
        let wanted = match wanted {
            Wanted::All { pools, .. } => Wanted::All {
                volumes: objects.pods.values().any(|pod| api_server::waits_with_volumes(pod)),
                pools,
            },
            other => other,
        };
        let of_cluster = api_server::load(arguments, wanted).map_err(|error| {
            CommandError::Asked(format!(
                "the files have no ResourceSlice and no Node: give these, too, or a cluster; {error}"
            ))
        })?;
        warn(&of_cluster.warnings);
        let api_server::Loaded { mut objects, pools, quotas, foreign, namespace, kubernetes, .. } =
            of_cluster;
        let loaded = files::parse(&texts, &namespace, besides)?;
        objects.overlay(&loaded.objects);
        let (manifests, given) = (loaded.manifests.unwrap_or_default(), Some(loaded.objects));
        let is_live = true;
        Ok(Source {
            objects,
            pools,
            quotas,
            events,
            foreign,
            manifests,
            namespace,
            given,
            is_live,
            kubernetes,
        })
    }

    /// The release to answer as: the requested one, else the API server's, else the newest known.
    pub fn release(&self, arguments: &ReleaseArguments) -> KubernetesVersion {
        arguments.kubernetes.or(self.kubernetes).unwrap_or_default()
    }
}

/// Without a kubeconfig, files may be meant.
fn or_files(error: ClusterError) -> CommandError {
    match error {
        ClusterError::Kubeconfig(_) => CommandError::Asked(format!("{error}, or give files with -f")),
        other => other.into(),
    }
}
