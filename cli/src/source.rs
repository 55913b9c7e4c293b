//! Objects of the cluster or of files, as the command line says.

use crate::arguments::SourceArguments;
use crate::cluster::{self, Wanted};
use crate::files;
use crate::objects::Objects;
use crate::output::{CommandError, warn};

/// Objects, and where they come from.
#[derive(Debug)]
pub struct Source {
    /// The objects.
    pub objects: Objects,
    /// Namespace of what is named on the command line.
    pub namespace: String,
}

impl Source {
    /// Reads what is wanted.
    ///
    /// # Errors
    /// Files or cluster could not be read.
    pub fn load(arguments: &SourceArguments, wanted: Wanted) -> Result<Self, CommandError> {
        if arguments.files.is_empty() {
            let (objects, namespace) = cluster::load(arguments, wanted)?;
            return Ok(Source { objects, namespace });
        }
        let namespace = arguments.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let loaded = files::load(&arguments.files, arguments.recursive, &namespace)?;
        warn(&loaded.warnings);
        Ok(Source { objects: loaded.objects, namespace })
    }
}
