use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tessera_api::PciBusId;
use tessera_api::config::Sharing;
use tessera_api::facts::Placement;

use crate::boot_id::BootId;
use crate::change::{HardwareChange, ModeChange, MpsDaemonChange, PartitionChange, PartitionInstances};

/// Progress of the work that a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Written before the hardware is touched. Found at a start, it means that the work was interrupted: whatever
    /// exists of it is undone.
    Intent,
    /// The work is done.
    Complete,
}

/// A claim that holds devices of this driver on this node.
///
/// It has what Unprepare needs when the API object is gone, and only this driver's own results of the allocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRecord {
    /// Version of the record's form: [`ClaimRecord::VERSION`]. Fields may be added without a new version.
    pub version: u64,
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// The claim's `metadata.uid`; also the name of the record's file.
    pub uid: String,
    /// The boot in which it was written. In another boot, the claim is not prepared.
    pub boot_id: BootId,
    /// Progress of Prepare.
    pub stage: Stage,
    /// The claim's devices, in the order of its allocation results.
    pub devices: Vec<ClaimDevice>,
    /// The pods that it was reserved for when it was prepared, the first few of many. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<ClaimPod>,
    /// That its containers are told what its devices are (KEP-5304). Absent in records of earlier versions, whose claims'
    /// containers are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ClaimMetadata>,
    /// Unknown fields of other versions, kept when the record is written again.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What the files that tell a claim's devices to its containers say of the claim, besides its names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimMetadata {
    /// The entry of its pod's `resourceClaims` that it was made for, where it was made of a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_claim: Option<String>,
}

/// A pod that a claim is reserved for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimPod {
    /// Its name, in the claim's namespace.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// One allocation result of a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimDevice {
    /// The device's name in its pool. A string, so that a name that only another version knows is kept.
    pub device: String,
    /// The card that the device is, or is part of.
    pub card: PciBusId,
    /// The pool.
    pub pool: String,
    /// The request it satisfies, without the subrequest's part.
    pub request: String,
    /// The alternative of the request that was allocated, of one with `firstAvailable`. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternative: Option<String>,
    /// The allocated share, for devices that several claims may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// Whether it was allocated with admin access: the claim may look at the device and holds nothing of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin_access: bool,
    /// UUID of the card when the claim was prepared.
    pub card_uuid: String,
    /// `N` of the card's `/dev/nvidiaN` when the claim was prepared.
    pub minor: u32,
    /// The CDI name, by which the container runtime finds it.
    pub cdi_device_id: String,
    /// The partition; `None` for a whole card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<ClaimPartition>,
    /// How the claim's own pods share it, if configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<ClaimSharing>,
    /// Its MPS share: limits and daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mps: Option<ClaimMps>,
    /// The [`HardwareRecord`]s that this device depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hardware: Vec<String>,
    /// Unknown fields of other versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// How the pods and containers of a claim share a [`ClaimDevice`] that it holds for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSharing {
    /// Index of the allocation's configuration object by precedence, from 0: cards of one object are shared together.
    pub object: u32,
    /// The kind of sharing.
    pub how: Sharing,
}

/// The MPS share of a [`ClaimDevice`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimMps {
    /// Memory limit of each process in its environment, MiB; `None` where the environment sets none: then only the
    /// daemon's own limit applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_mib: Option<u64>,
    /// Limit of each process in percent of the multiprocessors, in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_thread_percentage: Option<u8>,
    /// Memory of all processes together, MiB; `None` where it is all of the device's, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Limit of all processes together, in percent of the device's multiprocessors. Absent in records of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<u8>,
    /// `CUDA_MPS_SM_PARTITION`, where the share has multiprocessors of its own: the percentages are not used then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_partition: Option<String>,
    /// The daemon's `CUDA_MPS_PIPE_DIRECTORY` on the node, once known: always in a complete record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipe_directory: Option<String>,
    /// What is mounted as `/dev/shm` in containers, where the daemon has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm_directory: Option<String>,
    /// The MPS server that the share was prepared on, by mps-host's name for it. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// The MIG partition of a [`ClaimDevice`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimPartition {
    /// The profile as NVIDIA writes it: `1g.10gb`.
    pub profile: String,
    /// The memory slices it takes.
    pub placement: Placement,
    /// Width of its compute instance, where it is less than all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_slices: Option<u32>,
    /// The instances behind it, once known: always in a complete record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<PartitionInstances>,
}

/// A change that this driver made to a card: a partition, a mode switch, a daemon. It belongs to the card, is written and
/// synced before the card is touched, and may outlive the claims that refer to it.
///
/// Most whole cards need none. The kinds, and how to recognise the result of an intent, are described by `change`
/// ([`HardwareChange`]); a kind that this build does not know is left alone and reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareRecord {
    /// Version of the record's form: [`HardwareRecord::VERSION`].
    pub version: u64,
    /// Its name, unique on the node; also the name of the record's file.
    pub id: String,
    /// The card.
    pub card: PciBusId,
    /// UUID of the card: another card in the same slot is not mistaken for it.
    pub card_uuid: String,
    /// The boot in which it was written.
    pub boot_id: BootId,
    /// Whether the change was completed.
    pub stage: Stage,
    /// The change, and how to recognise it.
    pub change: Map<String, Value>,
    /// Unknown fields of other versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl ClaimDevice {
    /// Its name in the claim's CDI spec, unique among all results of a node.
    #[must_use]
    pub fn cdi_name(&self) -> &str {
        self.cdi_device_id.rsplit('=').next().unwrap_or_default()
    }

    /// UUID of the card or partition that it is or shares; `None` for a partition that is not made yet.
    #[must_use]
    pub fn uuid(&self) -> Option<&str> {
        match &self.partition {
            None => Some(&self.card_uuid),
            Some(partition) => partition.instances.as_ref().map(|instances| instances.uuid.as_str()),
        }
    }
}

/// A kind of record: its directory and the versions that this build reads.
pub(super) trait Record: Serialize + for<'de> Deserialize<'de> {
    /// Directory below the journal's.
    const DIRECTORY: &'static str;
    /// The version that this build writes, and the newest that it reads.
    const VERSION: u64;
    /// The record's own name.
    fn id(&self) -> &str;
}

impl ClaimRecord {
    /// The version that this build writes and the newest it reads.
    pub const VERSION: u64 = 1;
}

impl HardwareRecord {
    /// The version that this build writes and the newest it reads.
    pub const VERSION: u64 = 1;

    /// The change, where this build knows its kind.
    #[must_use]
    pub fn known_change(&self) -> Option<HardwareChange> {
        serde_json::from_value(Value::Object(self.change.clone())).ok()
    }

    /// The partition, if the record is of one.
    #[must_use]
    pub fn partition(&self) -> Option<PartitionChange> {
        match self.known_change()? {
            HardwareChange::MigPartition(partition) => Some(partition),
            _ => None,
        }
    }

    /// The mode switch, if the record is of one.
    #[must_use]
    pub fn mode(&self) -> Option<ModeChange> {
        match self.known_change()? {
            HardwareChange::MigMode(mode) => Some(mode),
            _ => None,
        }
    }

    /// The MPS daemon, if the record is of one.
    #[must_use]
    pub fn daemon(&self) -> Option<MpsDaemonChange> {
        match self.known_change()? {
            HardwareChange::MpsDaemon(daemon) => Some(daemon),
            _ => None,
        }
    }
}

impl Record for ClaimRecord {
    const DIRECTORY: &'static str = "claims";
    const VERSION: u64 = Self::VERSION;

    fn id(&self) -> &str {
        &self.uid
    }
}

impl Record for HardwareRecord {
    const DIRECTORY: &'static str = "hardware";
    const VERSION: u64 = Self::VERSION;

    fn id(&self) -> &str {
        &self.id
    }
}

/// Reference counts: each referenced hardware record's id, with the UIDs of the claims that refer to it.
#[must_use]
pub fn references<'a>(claims: impl IntoIterator<Item = &'a ClaimRecord>) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut references = BTreeMap::<&str, Vec<&str>>::new();
    for claim in claims {
        for id in claim.devices.iter().flat_map(|device| &device.hardware) {
            let users = references.entry(id).or_default();
            if !users.contains(&claim.uid.as_str()) {
                users.push(&claim.uid);
            }
        }
    }
    references
}
