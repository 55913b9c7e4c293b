use std::fs;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tessera_api::PciBusId;

use super::DeviceUuid;
use super::directory::DaemonDirectory;
use super::error::MpsError;
use super::protocol::Settings;

/// What the supervisor must know of a daemon after its own death. Written before anything is touched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// Form of the record.
    pub version: u64,
    /// The card or partition.
    pub device: DeviceUuid,
    /// The card.
    pub card: PciBusId,
    /// What its clients are held to.
    pub settings: Settings,
    /// Whether it shall run or end.
    pub wanted: bool,
    /// Compute mode before it was set for MPS (`nvmlComputeMode_t`); none where it was not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_mode_before: Option<u32>,
    /// How often it was started again.
    #[serde(default)]
    pub restarts: u32,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Record {
    pub const VERSION: u64 = 1;

    /// Reads a daemon's record; none where there is none or it is damaged, which is told.
    pub fn read(directory: &DaemonDirectory) -> Option<Self> {
        let text = match fs::read(&directory.record) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %directory.record.display(), %error, "cannot read the record of a daemon");
                return None;
            }
        };
        match serde_json::from_slice::<Record>(&text) {
            Ok(record) if record.version <= Self::VERSION => Some(record),
            Ok(record) => {
                tracing::warn!(path = %directory.record.display(), version = record.version,
                    "the record of a daemon is of a newer version");
                Some(record)
            }
            Err(error) => {
                tracing::warn!(path = %directory.record.display(), %error, "the record of a daemon is damaged");
                None
            }
        }
    }

    /// Replaces the record as a whole.
    pub fn write(&self, directory: &DaemonDirectory) -> Result<(), MpsError> {
        let path = &directory.record;
        fs::create_dir_all(&directory.root).map_err(MpsError::at(&directory.root))?;
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from).map_err(MpsError::at(path))?;
        let new = path.with_extension("new");
        fs::write(&new, text).map_err(MpsError::at(&new))?;
        fs::rename(&new, path).map_err(MpsError::at(path))
    }
}
