//! Queries of PromQL and alerts over scrapes, by Prometheus' own parser of scrapes, storage and engines.

use std::collections::BTreeMap;
use std::process::Stdio;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::progress::Progress;
use crate::tools::{Module, ToolError, Tools};

/// The metrics of one target at one time.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scrape {
    /// When, in seconds since the epoch.
    pub at: u64,
    /// The answer's `Content-Type`.
    pub content_type: String,
    /// The answer.
    pub text: String,
    /// Labels of the target from the scrape configuration. A series' own win, as with `honor_labels`.
    pub labels: BTreeMap<String, String>,
}

/// The result of a query.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// The labels of each series with a number at any time.
    pub series: Vec<BTreeMap<String, String>>,
    /// The evaluation error; empty on success.
    #[serde(default)]
    pub error: String,
}

/// An alert that fired.
#[derive(Clone, Debug, Deserialize)]
pub struct Alert {
    /// Its labels, with its name as `alertname`.
    pub labels: BTreeMap<String, String>,
    /// Its annotations, with their templates filled in.
    pub annotations: BTreeMap<String, String>,
    /// When it began to fire, in seconds since the epoch.
    pub at: u64,
}

/// Why queries were not evaluated.
#[derive(Debug, Error)]
pub enum PromqlError {
    /// The program cannot be built.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The program cannot be run.
    #[error("the evaluator of PromQL: {0}")]
    Io(#[from] std::io::Error),
    /// The program failed, at a scrape refused by Prometheus.
    #[error("the evaluator of PromQL failed: {0}")]
    Failed(String),
    /// The program's output has another form.
    #[error("the evaluator's answer is none: {0}")]
    Form(#[from] serde_json::Error),
}

/// Evaluates queries from the first scrape to the last, every `step` seconds; scrapes are in the order of their times.
///
/// # Errors
/// See [`PromqlError`]. An invalid query is no error here: its answer has the message.
pub async fn evaluate(scrapes: &[Scrape], queries: &[String], step: u32) -> Result<Vec<Answer>, PromqlError> {
    ask(&serde_json::json!({"scrapes": scrapes, "queries": queries, "step": step})).await
}

/// Alerts of a rule file that fire from the first scrape to the last, evaluated every `step` seconds.
///
/// # Errors
/// See [`PromqlError`]; the file may be invalid.
pub async fn alerts(scrapes: &[Scrape], rules: &str, step: u32) -> Result<Vec<Alert>, PromqlError> {
    ask(&serde_json::json!({"scrapes": scrapes, "rules": rules, "step": step})).await
}

async fn ask<T: DeserializeOwned>(request: &serde_json::Value) -> Result<T, PromqlError> {
    let tools = Tools::build_in_background(&[Module::Promql], &Progress::default()).await?;
    let mut child = Command::new(tools.path(Module::Promql, "promql")?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let request = request.to_string();
    // The program reads everything before writing.
    if let Some(mut input) = child.stdin.take() {
        input.write_all(request.as_bytes()).await?;
    }
    let output = child.wait_with_output().await?;
    if !output.status.success() {
        return Err(PromqlError::Failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
