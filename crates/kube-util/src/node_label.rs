//! Labels of this node, by which an administrator chooses its configuration.

mod watch;

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};

use crate::error_text::{shorten, with_causes};

pub use watch::{Labels, changed, follow};

/// Longest wait for the API server's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The Node can't be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the label {label} of this node: {reason}")]
pub struct NodeLabelError {
    /// The label's key.
    pub label: String,
    /// The error.
    pub reason: String,
}

/// The value of a label of the Node called `node_name`; `None` where it has no such label, or an empty one.
///
/// # Errors
/// [`NodeLabelError`]: the API server refuses, or does not answer within ten seconds.
pub async fn read(client: &Client, node_name: &str, label: &str) -> Result<Option<String>, NodeLabelError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let failed =
        |reason: String| NodeLabelError { label: label.to_owned(), reason: shorten(&reason, 500).to_owned() };
    let node = tokio::time::timeout(PATIENCE, nodes.get_metadata(node_name))
        .await
        .map_err(|_| failed(format!("no answer within {PATIENCE:?}")))?
        .map_err(|error| failed(with_causes(&error)))?;
    let value = node.metadata.labels.and_then(|mut labels| labels.remove(label));
    Ok(value.filter(|value| !value.is_empty()))
}
