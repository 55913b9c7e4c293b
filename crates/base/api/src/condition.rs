//! Conditions in the status of Tessera's own kinds.

use serde::{Deserialize, Serialize};

/// A condition (`metav1.Condition`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is said, such as `Ready`.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, in words.
    pub message: String,
    /// When the status changed last, RFC 3339.
    pub last_transition_time: String,
}
