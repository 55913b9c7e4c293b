//! Reads the wanted layout from file and node label.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::Client;
use tessera_inventory::layout::{LayoutConfig, LayoutFile};

use tessera_kube_util::node_label::{self, NodeLabelError};

/// Size limit of a layout file, in bytes. NVIDIA's own file for all its boards has 20 KB.
const LARGEST_FILE: u64 = 1 << 20;

/// Where layouts come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutOptions {
    /// File in `mig-parted`'s format; without one there are no layouts.
    pub file: Option<PathBuf>,
    /// The configuration in it to apply if the node's label names none.
    pub name: Option<String>,
    /// Key of the Node's label that names the configuration.
    pub label: Option<String>,
}

/// A configuration and its name.
pub(super) type Named = (String, Arc<LayoutConfig>);

/// Why the wanted layout is unknown. Until it is known again, the last one applies.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// The file can't be read.
    #[error("cannot read the layout file {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    /// It exceeds the size limit.
    #[error("the layout file {path} is larger than {LARGEST_FILE} bytes")]
    TooLarge { path: PathBuf },
    /// Its content is wrong.
    #[error("the layout file {path}: {reason}")]
    Content { path: PathBuf, reason: String },
    /// The Node can't be read.
    #[error(transparent)]
    Label(#[from] NodeLabelError),
}

/// The wanted configuration; `None` if neither label nor option names one.
pub(super) async fn wanted(
    options: &LayoutOptions,
    client: &Client,
    node_name: &str,
) -> Result<Option<Named>, SourceError> {
    let Some(path) = options.file.clone() else { return Ok(None) };
    let label = match &options.label {
        Some(label) => node_label::read(client, node_name, label).await?,
        None => None,
    };
    let Some(name) = label.or_else(|| options.name.clone()) else { return Ok(None) };
    // Blocking is fine: a small file, rarely read.
    let file = read(&path)?;
    let content = |reason: String| SourceError::Content { path: path.clone(), reason };
    let config = file.config(&name).map_err(|error| content(error.to_string()))?;
    let config = Arc::new(config.clone());
    Ok(Some((name, config)))
}

fn read(path: &Path) -> Result<LayoutFile, SourceError> {
    let failed = |source| SourceError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > LARGEST_FILE {
        return Err(SourceError::TooLarge { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    LayoutFile::parse(&text)
        .map_err(|error| SourceError::Content { path: path.to_owned(), reason: error.to_string() })
}
