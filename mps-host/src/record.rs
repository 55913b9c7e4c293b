//! A daemon's record on disk.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tessera_api::PciBusId;

use super::device::DeviceUuid;
use super::directory::DaemonDirectory;
use super::error::MpsError;
use super::partitions::SharePartition;
use super::protocol::{Ensure, OtherDevice, Settings};

/// A new supervisor's knowledge of a daemon. Written before anything is touched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// Format version of the record.
    pub version: u64,
    /// The card or partition.
    pub device: DeviceUuid,
    /// The card.
    pub card: PciBusId,
    /// Limits of its clients.
    pub settings: Settings,
    /// The partitions of its shares, oldest first, if shares have multiprocessors of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_partitions: Option<Vec<SharePartition>>,
    /// Whether the daemon should run; otherwise it should end.
    pub wanted: bool,
    /// Compute mode before the change for MPS (`nvmlComputeMode_t`); `None` without a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_mode_before: Option<u32>,
    /// Whether the cards were closed to all programs while there is no daemon.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// Further cards of the daemon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherCard>,
    /// The daemon's owner, unless shared by all shares of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Number of restarts.
    #[serde(default)]
    pub restarts: u32,
    /// Unknown fields, of other versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A further card of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtherCard {
    #[serde(flatten)]
    pub device: OtherDevice,
    /// Its compute mode before MPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_mode_before: Option<u32>,
}

impl Record {
    pub const VERSION: u64 = 1;

    /// The record of a new daemon.
    pub fn new(wanted: &Ensure) -> Self {
        let other = |device: &OtherDevice| OtherCard { device: device.clone(), compute_mode_before: None };
        Self {
            version: Self::VERSION,
            device: wanted.device.clone(),
            card: wanted.card,
            settings: wanted.settings,
            static_partitions: wanted.static_shares.as_ref().map(|_| Vec::new()),
            wanted: true,
            compute_mode_before: None,
            closed: false,
            others: wanted.others.iter().map(other).collect(),
            owner: wanted.owner.clone(),
            restarts: 0,
            other: Map::new(),
        }
    }

    /// Whether the record matches the request in everything unchangeable.
    pub fn is_of(&self, wanted: &Ensure) -> bool {
        let own = self.others.iter().map(|other| &other.device.device);
        self.owner == wanted.owner && own.eq(wanted.others.iter().map(|other| &other.device))
    }

    /// Takes over the requested limits; returns whether any changed.
    pub fn set_limits(&mut self, wanted: &Ensure) -> bool {
        let mut are_other = self.settings != wanted.settings;
        self.settings = wanted.settings;
        for (own, wanted) in self.others.iter_mut().zip(&wanted.others) {
            are_other |= own.device.memory_limit_mib != wanted.memory_limit_mib;
            own.device.memory_limit_mib = wanted.memory_limit_mib;
        }
        are_other
    }

    /// All its cards.
    pub fn cards(&self) -> impl Iterator<Item = PciBusId> {
        std::iter::once(self.card).chain(self.others.iter().map(|other| other.device.card))
    }

    /// The cards whose compute mode the daemon sets, each with the mode before. Partitions have no mode of their own.
    pub fn modes(&mut self) -> Vec<(PciBusId, &mut Option<u32>)> {
        if self.device.is_partition() {
            return Vec::new();
        }
        let others = self.others.iter_mut().map(|other| (other.device.card, &mut other.compute_mode_before));
        std::iter::once((self.card, &mut self.compute_mode_before)).chain(others).collect()
    }

    /// Memory limits, MiB, each with the daemon's name of the device.
    pub fn memory_limits(&self) -> Vec<(String, u64)> {
        if self.others.is_empty() {
            return self.settings.memory_limit_mib.map(|limit| ("0".to_owned(), limit)).into_iter().collect();
        }
        let others = self.others.iter().map(|other| (&other.device.device, other.device.memory_limit_mib));
        let all = std::iter::once((&self.device, self.settings.memory_limit_mib)).chain(others);
        all.filter_map(|(device, limit)| Some((device.to_string(), limit?))).collect()
    }

    /// Whether shares have multiprocessors of their own.
    pub const fn is_static(&self) -> bool {
        self.static_partitions.is_some()
    }

    /// Reads a daemon's record; `None` if missing or damaged. A damaged one is logged.
    ///
    /// # Errors
    /// The operating system's error, if the existence of a good record remains unknown.
    pub fn read(directory: &DaemonDirectory) -> io::Result<Option<Self>> {
        let text = match fs::read(&directory.record) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory) =>
            {
                tracing::warn!(path = %directory.record.display(), %error, "the record of a daemon is no file");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        Ok(match serde_json::from_slice::<Record>(&text) {
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
        })
    }

    /// Replaces the whole record.
    pub fn write(&self, directory: &DaemonDirectory) -> Result<(), MpsError> {
        let path = &directory.record;
        // Don't write through something else in the directory's place, such as a link.
        if fs::symlink_metadata(&directory.root).is_ok_and(|metadata| !metadata.is_dir()) {
            tracing::warn!(path = %directory.root.display(), "this is no directory of a daemon; removing it");
            fs::remove_file(&directory.root).map_err(MpsError::at(&directory.root))?;
        }
        fs::create_dir_all(&directory.root).map_err(MpsError::at(&directory.root))?;
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from).map_err(MpsError::at(path))?;
        let new = path.with_extension("new");
        fs::write(&new, text).map_err(MpsError::at(&new))?;
        fs::rename(&new, path).map_err(MpsError::at(path))
    }
}
