//! Cache of `nvidia-ctk`'s answer on disk.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cdi::{ContainerEdits, Roots};
use tessera_journal::{FileSystem, replace_unsynced};

/// All inputs of the tool's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Key {
    driver_version: String,
    tool: String,
    tool_size: u64,
    tool_modified: i64,
    driver_root: String,
    host_driver_root: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Remembered {
    key: Key,
    container_edits: ContainerEdits,
}

impl Key {
    pub(super) fn new(tool: &Path, version: &str, roots: &Roots) -> Self {
        let metadata = fs::metadata(tool).ok();
        Self {
            driver_version: version.to_owned(),
            tool: tool.to_string_lossy().into_owned(),
            tool_size: metadata.as_ref().map_or(0, MetadataExt::size),
            tool_modified: metadata.as_ref().map_or(0, MetadataExt::mtime),
            driver_root: roots.driver.to_string_lossy().into_owned(),
            host_driver_root: roots.host_driver.to_string_lossy().into_owned(),
        }
    }
}

/// The cached answer; `None` if missing for this key or unreadable: then the tool has to be run.
pub(super) fn read(file_system: &dyn FileSystem, path: &Path, key: &Key) -> Option<ContainerEdits> {
    let remembered: Remembered = serde_json::from_slice(&file_system.read(path).ok()?).ok()?;
    (remembered.key == *key).then_some(remembered.container_edits)
}

/// Replaces the cached answer. Not synced: the tool can be run again.
pub(super) fn write(
    file_system: &dyn FileSystem,
    path: &Path,
    key: Key,
    edits: &ContainerEdits,
) -> io::Result<()> {
    let remembered = Remembered { key, container_edits: edits.clone() };
    replace_unsynced(file_system, path, &serde_json::to_vec(&remembered)?)
}
