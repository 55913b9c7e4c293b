use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::Client;
use tessera_inventory::layout::{LayoutConfig, LayoutFile};

use tessera_kube_util::node_label::{self, NodeLabelError};

/// Largest layout file that is read, in bytes. NVIDIA's own for all its boards has 20 KB.
const LARGEST_FILE: u64 = 1 << 20;

/// Where layouts come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutOptions {
    /// The file of `mig-parted`'s format; without one nothing is laid out.
    pub file: Option<PathBuf>,
    /// The configuration of it to apply where the node's label names none.
    pub name: Option<String>,
    /// Key of the Node's label that names the configuration.
    pub label: Option<String>,
}

/// A configuration and its name.
pub(super) type Named = (String, Arc<LayoutConfig>);

/// Why there is no telling what is wanted. What was wanted last is kept meanwhile.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// The file can't be read.
    #[error("cannot read the layout file {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    /// It is larger than a layout file can be.
    #[error("the layout file {path} is larger than {LARGEST_FILE} bytes")]
    TooLarge { path: PathBuf },
    /// Its content is wrong.
    #[error("the layout file {path}: {reason}")]
    Content { path: PathBuf, reason: String },
    /// The Node can't be read.
    #[error(transparent)]
    Label(#[from] NodeLabelError),
}

/// What is wanted now; `None` where no configuration is named.
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
    // A small file that is read once in a while.
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
