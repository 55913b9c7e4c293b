//! Reads what the node offers from file and node label.

use std::path::{Path, PathBuf};

use kube::Client;
use serde_json::Value;
use tessera_api::{NodeConfigs, Offer, node_config::OfferError};

use tessera_kube_util::error_text::shorten;
use tessera_kube_util::node_label::{self, NodeLabelError};

/// Size limit of the file, in bytes: more than a ConfigMap can hold.
const LARGEST_FILE: u64 = 2 << 20;

/// Where the configuration comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeConfigOptions {
    /// File with `NodeConfigs`; without one the node offers whole cards and MIG partitions.
    pub file: Option<PathBuf>,
    /// The configuration of nodes without the label.
    pub name: Option<String>,
    /// Key of the Node's label that names its configuration.
    pub label: Option<String>,
}

/// Why it is unknown what the node offers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file can't be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It exceeds the size limit.
    #[error("{0} is larger than {LARGEST_FILE} bytes")]
    TooLarge(PathBuf),
    /// It is not YAML.
    #[error("{path}: {reason}")]
    Yaml {
        /// The file.
        path: PathBuf,
        /// The parser's message.
        reason: String,
    },
    /// Its content is wrong, or it has no configuration with the name in the node's label.
    #[error("{path}: {source}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: OfferError,
    },
    /// The Node can't be read.
    #[error(transparent)]
    Label(#[from] NodeLabelError),
}

/// What the node offers. Without a file, or if neither label nor option names a configuration, the default.
pub(super) async fn wanted(
    options: &NodeConfigOptions,
    client: &Client,
    node_name: &str,
) -> Result<Offer, SourceError> {
    let Some(path) = &options.file else { return Ok(Offer::default()) };
    // Blocking is fine: a small file, rarely read. Read it whatever the label says, so that mistakes show
    // early.
    let configs = read(path)?;
    let label = match &options.label {
        Some(label) => node_label::read(client, node_name, label).await?,
        None => None,
    };
    match label.or_else(|| options.name.clone()) {
        Some(name) => {
            configs.get(&name).cloned().map_err(|source| SourceError::Content { path: path.clone(), source })
        }
        None => Ok(Offer::default()),
    }
}

fn read(path: &Path) -> Result<NodeConfigs, SourceError> {
    let failed = |source| SourceError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > LARGEST_FILE {
        return Err(SourceError::TooLarge(path.to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let options = serde_saphyr::options! { with_snippet: false };
    let object: Value = serde_saphyr::from_str_with_options(&text, options).map_err(|error| {
        let reason = shorten(&error.without_snippet().to_string(), 300).to_owned();
        SourceError::Yaml { path: path.to_owned(), reason }
    })?;
    NodeConfigs::decode(&object).map_err(|source| SourceError::Content { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<NodeConfigs, SourceError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("configs.yaml");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn a_file_of_yaml() {
        let text = "apiVersion: gpu.tessera.dev/v1alpha1\nkind: NodeConfigs\nconfigs:\n  a:\n    wholeCards: false\n";
        assert!(!read_text(text).unwrap().get("a").unwrap().whole_cards);
    }

    #[test]
    fn what_is_wrong_is_told_with_the_file() {
        for (text, part) in [
            ("", "object"),
            ("a: [", "line"),
            ("apiVersion: v1\nkind: NodeConfigs\n", "apiVersion"),
            ("apiVersion: gpu.tessera.dev/v1alpha1\nkind: NodeConfigs\nconfigs: {a: {b: 1}}\n", "\"a\""),
        ] {
            let error = read_text(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("configs.yaml"), "{text:?}: {error}");
        }
        assert!(read(Path::new("/nowhere")).unwrap_err().to_string().contains("/nowhere"));
    }
}
