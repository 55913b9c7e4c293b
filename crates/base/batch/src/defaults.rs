//! A site's settings for the jobs of a namespace.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Volume, VolumeMount};
use serde::de::DeserializeOwned;

use crate::error::BatchError;

/// Name of the ConfigMap with the defaults of a namespace.
pub const DEFAULTS_CONFIG_MAP: &str = "gpu-run";

/// The data of the ConfigMap [`DEFAULTS_CONFIG_MAP`]. Options of the job win.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Defaults {
    /// Key `image`.
    pub image: Option<String>,
    /// Key `toolsImage`: the image with srun, for registries of one's own.
    pub tools_image: Option<String>,
    /// Key `user`, as in `1000` or `1000:1000`: user and group of the processes.
    pub user: Option<(i64, Option<i64>)>,
    /// Key `environment`: a line `NAME=VALUE` for each.
    pub environment: Vec<(String, String)>,
    /// Key `volumes`: as in a pod's specification, in YAML.
    pub volumes: Vec<Volume>,
    /// Key `volumeMounts`: as in a container, in YAML.
    pub volume_mounts: Vec<VolumeMount>,
}

impl Defaults {
    /// Of the ConfigMap's data.
    ///
    /// # Errors
    /// A key is unknown, or its value cannot be read.
    pub fn new(data: &BTreeMap<String, String>) -> Result<Self, BatchError> {
        const KEYS: [&str; 6] = ["image", "toolsImage", "user", "environment", "volumes", "volumeMounts"];
        if let Some(unknown) = data.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let message = format!("{unknown:?} is unknown: {} are possible", KEYS.join(", "));
            return Err(BatchError::Defaults { key: "data", message });
        }
        let text = |key: &str| data.get(key).map(|text| text.trim()).filter(|text| !text.is_empty());
        Ok(Defaults {
            image: text("image").map(str::to_owned),
            tools_image: text("toolsImage").map(str::to_owned),
            user: text("user").map(user).transpose()?,
            environment: environment(text("environment").unwrap_or_default())?,
            volumes: text("volumes").map_or(Ok(Vec::new()), |text| yaml("volumes", text))?,
            volume_mounts: text("volumeMounts").map_or(Ok(Vec::new()), |text| yaml("volumeMounts", text))?,
        })
    }
}

fn user(text: &str) -> Result<(i64, Option<i64>), BatchError> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let number = |text: &str| {
        text.parse::<u32>().map(i64::from).map_err(|_| BatchError::Defaults {
            key: "user",
            message: format!("{text:?} is no number: expected 1000 or 1000:1000"),
        })
    };
    Ok((number(user)?, group.map(number).transpose()?))
}

fn environment(text: &str) -> Result<Vec<(String, String)>, BatchError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(BatchError::Defaults {
                key: "environment",
                message: format!("{line:?}: expected NAME=VALUE"),
            }),
        })
        .collect()
}

fn yaml<T: DeserializeOwned>(key: &'static str, text: &str) -> Result<T, BatchError> {
    serde_saphyr::from_str(text)
        .map_err(|error| BatchError::Defaults { key, message: error.to_string().replace('\n', " ") })
}
