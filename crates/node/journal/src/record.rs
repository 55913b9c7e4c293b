use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tessera_api::PciBusId;
use tessera_api::config::Sharing;
use tessera_api::facts::Placement;

use crate::boot_id::BootId;
use crate::change::{HardwareChange, ModeChange, MpsDaemonChange, PartitionChange, PartitionInstances};

/// Progress of the work described by a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Written before the hardware is touched. Found at a start, an intent means interrupted work: any part
    /// already done is undone.
    Intent,
    /// The work is done.
    Complete,
}

/// A claim with devices of this driver on this node.
///
/// Has everything needed by Unprepare when the API object is gone, and only this driver's own results of the allocation.
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
    /// The boot in which the record was written. In another boot, the claim is not prepared.
    pub boot_id: BootId,
    /// Progress of Prepare.
    pub stage: Stage,
    /// The claim's devices, in the order of its allocation results.
    pub devices: Vec<ClaimDevice>,
    /// The pods in `reservedFor` when the claim was prepared, the first few of many. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<ClaimPod>,
    /// Present if the claim's containers get files describing its devices (KEP-5304). Absent in records of earlier versions,
    /// whose claims' containers get no such files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ClaimMetadata>,
    /// Unknown fields of other versions, kept when the record is written again.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Facts about the claim in the device files given to its containers, besides the claim's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimMetadata {
    /// The entry of the pod's `resourceClaims` for which the claim was made from a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_claim: Option<String>,
}

/// A pod for which a claim is reserved.
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
    /// The device's name in its pool. A string, so names known only to another version are kept.
    pub device: String,
    /// The card itself, or the card of a partition.
    pub card: PciBusId,
    /// The pool.
    pub pool: String,
    /// The request satisfied by this device, without the subrequest's part.
    pub request: String,
    /// The allocated alternative of a request with `firstAvailable`. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternative: Option<String>,
    /// The allocated share, for devices open to several claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// Whether allocated with admin access: the claim may look at the device and holds nothing of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin_access: bool,
    /// UUID of the card when the claim was prepared.
    pub card_uuid: String,
    /// `N` of the card's `/dev/nvidiaN` when the claim was prepared.
    pub minor: u32,
    /// The CDI name used by the container runtime.
    pub cdi_device_id: String,
    /// The partition; `None` for a whole card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<ClaimPartition>,
    /// How the claim's own pods share the device, if configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<ClaimSharing>,
    /// Memory promised to the share where nothing limits its programs, MiB. Absent in records of earlier versions, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Its MPS share: limits and daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mps: Option<ClaimMps>,
    /// The [`HardwareRecord`]s on which this device depends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hardware: Vec<String>,
    /// Unknown fields of other versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// How the pods and containers of a claim share a [`ClaimDevice`] held by this claim alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSharing {
    /// Index of the allocation's configuration object by precedence, from 0: cards of one object are shared together.
    pub object: u32,
    /// The kind of sharing.
    pub how: Sharing,
}

/// The MPS share of a [`ClaimDevice`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimMps {
    /// Memory limit in the environment of each process, MiB; `None` where the environment sets none: then only the
    /// daemon's own limit applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_mib: Option<u64>,
    /// Limit in the environment of each process, in percent of the multiprocessors; `None` as for memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_thread_percentage: Option<u8>,
    /// Memory of all processes together, MiB; `None` for all of the device's memory, and in records of earlier versions.
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
    /// The source of `/dev/shm` in containers, where the daemon has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm_directory: Option<String>,
    /// The MPS server on which the share was prepared, by mps-host's name for the server. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// The MIG partition of a [`ClaimDevice`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimPartition {
    /// The profile as NVIDIA writes it: `1g.10gb`.
    pub profile: String,
    /// The memory slices taken by the partition.
    pub placement: Placement,
    /// Width of the compute instance, where less than all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_slices: Option<u32>,
    /// The instances behind the partition, once known: always in a complete record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<PartitionInstances>,
}

/// This driver's change to a card: a partition, a mode switch, a daemon. The record belongs to the card, is written and
/// synced before the card is touched, and may outlive the claims referring to it.
///
/// Most whole cards need none. The kinds, and how to recognise the result of an intent, are described by `change`
/// ([`HardwareChange`]). A kind unknown to this build is left alone and reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareRecord {
    /// Version of the record's form: [`HardwareRecord::VERSION`].
    pub version: u64,
    /// The record's name, unique on the node; also the name of its file.
    pub id: String,
    /// The card.
    pub card: PciBusId,
    /// UUID of the card, to detect another card in the same slot.
    pub card_uuid: String,
    /// The boot in which the record was written.
    pub boot_id: BootId,
    /// Whether the change was completed.
    pub stage: Stage,
    /// The change, and how to recognise its result.
    pub change: Map<String, Value>,
    /// Unknown fields of other versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl ClaimDevice {
    /// The device's name in the claim's CDI spec, unique among all results of a node.
    #[must_use]
    pub fn cdi_name(&self) -> &str {
        self.cdi_device_id.rsplit('=').next().unwrap_or_default()
    }

    /// UUID of the whole, partitioned or shared device itself; `None` for a partition not made yet.
    #[must_use]
    pub fn uuid(&self) -> Option<&str> {
        match &self.partition {
            None => Some(&self.card_uuid),
            Some(partition) => partition.instances.as_ref().map(|instances| instances.uuid.as_str()),
        }
    }
}

/// A kind of record: its directory and the versions read by this build.
pub(super) trait Record: Serialize + for<'de> Deserialize<'de> {
    /// Directory below the journal's.
    const DIRECTORY: &'static str;
    /// The version written by this build, also the newest readable version.
    const VERSION: u64;
    /// The record's own name.
    fn id(&self) -> &str;
}

impl ClaimRecord {
    /// The version written by this build, also the newest readable version.
    pub const VERSION: u64 = 1;
}

impl HardwareRecord {
    /// The version written by this build, also the newest readable version.
    pub const VERSION: u64 = 1;

    /// The change, if this build knows its kind.
    #[must_use]
    pub fn known_change(&self) -> Option<HardwareChange> {
        serde_json::from_value(Value::Object(self.change.clone())).ok()
    }

    /// The partition, if the record describes one.
    #[must_use]
    pub fn partition(&self) -> Option<PartitionChange> {
        match self.known_change()? {
            HardwareChange::MigPartition(partition) => Some(partition),
            _ => None,
        }
    }

    /// The mode switch, if the record describes one.
    #[must_use]
    pub fn mode(&self) -> Option<ModeChange> {
        match self.known_change()? {
            HardwareChange::MigMode(mode) => Some(mode),
            _ => None,
        }
    }

    /// The MPS daemon, if the record describes one.
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
