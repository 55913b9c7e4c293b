//! GpuQuotas of a file.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use tessera_api::GpuQuotaSpec;
use tessera_cluster::{GpuQuota, Key};
use tessera_simulate::fleet::Quotas;

use super::wrong;
use crate::files::{self, Besides};
use crate::output::{CommandError, warn};

/// Labels of namespaces, by their names.
type Labels = BTreeMap<Key, BTreeMap<String, String>>;

/// The quotas of a file or folder.
pub struct QuotaFile {
    /// The path as given.
    pub name: String,
    /// The quotas, with the namespaces of the file and others known.
    pub quotas: Quotas,
}

/// Reads the quotas. `known`: labels of namespaces from elsewhere.
///
/// # Errors
/// The file is unreadable, has no quota, or an invalid one.
pub fn read(file: &Path, known: &Labels) -> Result<QuotaFile, CommandError> {
    let texts = files::read(&[file.to_owned()], false)?;
    let loaded = files::parse(&texts, "default", Besides::Nothing)?;
    warn(&loaded.warnings);
    let quota = |(Key { name, .. }, quota): (Key, tessera_api::gpu_quota::GpuQuota)| {
        let spec = GpuQuotaSpec::decode(&json!(quota.spec))
            .map_err(|error| wrong(file, &format!("GpuQuota {name}: {error}")))?;
        Ok(GpuQuota { metadata: quota.metadata, spec, status: None })
    };
    let quotas = loaded.quotas.into_iter().map(quota).collect::<Result<Vec<_>, CommandError>>()?;
    if quotas.is_empty() {
        return Err(wrong(file, &"contains no GpuQuota"));
    }
    let namespaces = known.clone().into_iter().chain(loaded.objects.namespaces);
    let labels = namespaces.map(|(key, labels)| (key.name, labels)).collect();
    Ok(QuotaFile { name: file.display().to_string(), quotas: Quotas::new(quotas, labels) })
}
