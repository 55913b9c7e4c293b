//! Objects from the cluster or from files, depending on the command line.

use tessera_cluster::Objects;

use crate::api_server::{self, Wanted};
use crate::arguments::SourceArguments;
use crate::files;
use crate::output::{CommandError, warn};

/// Objects, and where they come from.
#[derive(Debug)]
pub struct Source {
    /// The objects.
    pub objects: Objects,
    /// Namespace of names on the command line.
    pub namespace: String,
    /// The objects of the files alone, if those of the cluster were added.
    pub given: Option<Objects>,
}

impl Source {
    /// Reads the wanted objects: only from files if these have devices or nodes, else from files and cluster.
    ///
    /// # Errors
    /// Files or cluster could not be read.
    pub fn load(arguments: &SourceArguments, wanted: Wanted) -> Result<Self, CommandError> {
        if arguments.files.is_empty() {
            let api_server::Loaded { objects, namespace, warnings } = api_server::load(arguments, wanted)?;
            warn(&warnings);
            return Ok(Source { objects, namespace, given: None });
        }
        let default = arguments.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let texts = files::read(&arguments.files, arguments.recursive)?;
        let loaded = files::parse(&texts, &default)?;
        warn(&loaded.warnings);
        if !loaded.objects.slices.is_empty() || !loaded.objects.nodes.is_empty() {
            return Ok(Source { objects: loaded.objects, namespace: default, given: None });
        }
        // Files without nodes and devices refer to those of the cluster.
        let api_server::Loaded { mut objects, namespace, warnings } = api_server::load(arguments, wanted)
            .map_err(|error| {
                CommandError::Asked(format!(
                    "the files have no ResourceSlice and no Node, and the cluster: {error}"
                ))
            })?;
        warn(&warnings);
        let loaded = files::parse(&texts, &namespace)?;
        objects.overlay(&loaded.objects);
        Ok(Source { objects, namespace, given: Some(loaded.objects) })
    }
}
