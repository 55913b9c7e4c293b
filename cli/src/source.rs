//! Objects from the cluster or from files, depending on the command line.

use std::collections::BTreeMap;

use tessera_api::gpu_pool::GpuPool;
use tessera_cluster::{Key, Objects};

use crate::api_server::{self, Wanted};
use crate::arguments::SourceArguments;
use crate::files;
use crate::foreign::Foreign;
use crate::output::{CommandError, warn};

/// Objects, and where they come from.
#[derive(Debug)]
pub struct Source {
    /// The objects.
    pub objects: Objects,
    /// GpuPools, if they are wanted; `None` where the API server has no such kind.
    pub pools: Option<BTreeMap<Key, GpuPool>>,
    /// Objects of other drivers, if they are wanted.
    pub foreign: Foreign,
    /// Namespace of names on the command line.
    pub namespace: String,
    /// The objects of the files alone, if those of the cluster were added.
    pub given: Option<Objects>,
    /// Whether anything is from the cluster.
    pub is_live: bool,
}

impl Source {
    /// Reads the wanted objects: only from files if these have devices or nodes, else from files and cluster.
    ///
    /// # Errors
    /// Files or cluster could not be read.
    pub fn load(arguments: &SourceArguments, wanted: Wanted) -> Result<Self, CommandError> {
        if arguments.files.is_empty() {
            let loaded = api_server::load(arguments, wanted)?;
            warn(&loaded.warnings);
            let api_server::Loaded { objects, pools, foreign, namespace, .. } = loaded;
            return Ok(Source { objects, pools, foreign, namespace, given: None, is_live: true });
        }
        let default = arguments.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let texts = files::read(&arguments.files, arguments.recursive)?;
        let loaded = files::parse(&texts, &default, wanted == Wanted::Migration)?;
        warn(&loaded.warnings);
        let files::Loaded { objects, pools, foreign, .. } = loaded;
        let has_pools = matches!(wanted, Wanted::Pools { .. }) && !pools.is_empty();
        let is_enough = has_pools || wanted == Wanted::Migration;
        if !objects.slices.is_empty() || !objects.nodes.is_empty() || is_enough {
            let (pools, foreign) = (Some(pools), foreign.unwrap_or_default());
            return Ok(Source { objects, pools, foreign, namespace: default, given: None, is_live: false });
        }
        // Files without nodes and devices refer to those of the cluster.
        let wanted = match wanted {
            Wanted::All { pools, .. } => Wanted::All {
                volumes: objects.pods.values().any(|pod| api_server::waits_with_volumes(pod)),
                pools,
            },
            other => other,
        };
        let of_cluster = api_server::load(arguments, wanted).map_err(|error| {
            CommandError::Asked(format!(
                "the files have no ResourceSlice and no Node, and the cluster: {error}"
            ))
        })?;
        warn(&of_cluster.warnings);
        let api_server::Loaded { mut objects, pools, foreign, namespace, .. } = of_cluster;
        let loaded = files::parse(&texts, &namespace, false)?;
        objects.overlay(&loaded.objects);
        Ok(Source { objects, pools, foreign, namespace, given: Some(loaded.objects), is_live: true })
    }
}
