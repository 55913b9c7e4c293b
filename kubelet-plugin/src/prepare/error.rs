//! Why a claim could not be prepared or unprepared.

mod about;
mod kind;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tessera_api::DeviceNameError;
use tessera_nvml::{CallError, NvmlError};

use super::Operation;
use crate::cdi::CdiError;
use tessera_card::LockError;
use tessera_journal::JournalError;

pub(in crate::prepare) use about::About;

/// Why a claim could not be prepared or unprepared. The kubelet shows the text in an Event of the pod and tries
/// again, with growing pauses.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The kubelet named a claim with an identifier never used by Kubernetes. Nothing is read or written for the claim.
    #[error("{what} {value:?} of the claim is none that Kubernetes gives out")]
    Reference {
        /// Name of the invalid part.
        what: &'static str,
        /// The value, shortened.
        value: String,
    },
    /// The API server did not answer, or refused to.
    #[error(
        "cannot read claim {claim} from the API server: {reason}; is the API server reachable from this node, and \
             may the plugin's service account get resourceclaims?"
    )]
    Api {
        /// The claim.
        claim: String,
        /// The API server's answer, or why there is none.
        reason: String,
        /// Whether the same request may succeed soon: no connection or no answer, 408, 429, 5xx.
        may_pass: bool,
    },
    /// The claim is not in the API: deleted since the kubelet read the object.
    #[error("claim {claim} does not exist any more; pods that use it can't be started, create it again")]
    Gone {
        /// The claim.
        claim: String,
    },
    /// Another claim of the same name has replaced the requested one.
    #[error(
        "claim {claim} got replaced by another of the same name, with uid {found}; the kubelet will ask for that one"
    )]
    Replaced {
        /// The requested claim.
        claim: String,
        /// UID of the claim in the API.
        found: String,
    },
    /// The claim has no allocation.
    #[error(
        "claim {claim} is not allocated; pods that use it can't be started before the scheduler has allocated it"
    )]
    NotAllocated {
        /// The claim.
        claim: String,
    },
    /// A result belongs to a pool not published by this node.
    #[error(
        "device {device} of the claim is in pool {pool:?}, this node's pool is {expected:?}: the claim is allocated on \
             another node, or with another driver name"
    )]
    ForeignPool {
        /// The device.
        device: String,
        /// Its pool.
        pool: String,
        /// The pool of this node.
        expected: String,
    },
    /// A result names a device not published by this driver.
    #[error("the claim is allocated a device that this node does not have: {0}")]
    Device(#[from] DeviceNameError),
    /// A result names a kind of device not supported by this build.
    #[error(
        "device {0} is of a kind that this version of the plugin does not prepare; is an older plugin running on the \
             node?"
    )]
    UnknownKind(String),
    /// Another claim holds the card.
    #[error("device {device} is held by claim {holder}{note}")]
    Held {
        /// The requested device.
        device: String,
        /// The claim holding the card, as `namespace/name (uid)`.
        holder: String,
        /// Details about the holder, beginning with a separator.
        note: Cow<'static, str>,
        /// UID of the holder if its release is under way, so the device will be free soon.
        leaving: Option<String>,
    },
    /// The kubelet wants a claim undone while pods using the claim run on the node.
    #[error(
        "claim {claim} is not undone, though the kubelet asks for that: {pods} of this node, for which it is reserved, still has \
             processes"
    )]
    PodsRun {
        /// The claim.
        claim: String,
        /// The pods.
        pods: String,
    },
    /// The claim or its cards are locked, by another instance of the plugin or by work on another claim.
    #[error(
        "{what} is being worked on, for {longest:?} now; the plugin's log tells by whom, also that of another instance"
    )]
    Busy {
        /// The object whose lock is taken.
        what: &'static str,
        /// Minimum time spent waiting for the lock.
        longest: Duration,
    },
    /// The driver library is not open.
    #[error("the node's NVIDIA driver cannot be used: {reason}")]
    NoDriver {
        /// Cause and remedy.
        reason: String,
    },
    /// The files of the driver whose kernel module is loaded are not on the node.
    #[error(
        "the node's NVIDIA driver has version {version}, and below {root} there is no libcuda of that version{}: its \
         packages were updated or removed while it was running. To use what is installed, reboot the node, or stop what uses \
         the cards and load the nvidia modules anew; or install version {version} again",
        others(.found)
    )]
    DriverFiles {
        /// The driver's version.
        version: String,
        /// Where its files should be, on the host.
        root: String,
        /// Versions of the driver found on the node.
        found: BTreeSet<String>,
    },
    /// The kernel module for unified memory is not loaded.
    #[error(
        "the kernel module nvidia-uvm is not loaded on this node, without which no CUDA program starts, {note}: run \
         `modprobe nvidia-uvm` on the node, and name it in /etc/modules-load.d, so that each boot loads it"
    )]
    UnifiedMemory {
        /// Why the plugin did not load the module.
        note: String,
    },
    /// The driver did not report its version.
    #[error("the NVIDIA driver does not tell its version: {0}")]
    Driver(NvmlError),
    /// The driver did not answer about a card.
    #[error("device {device}: {source}; {}", advice(.source))]
    Hardware {
        /// The device.
        device: String,
        /// The driver's answer.
        source: NvmlError,
    },
    /// The card at this address came after the claim's devices were allocated.
    #[error(
        "device {device} was allocated at {allocated}, but the card in its place, {found}, {}: delete the pod, so that its \
             claim is allocated anew", came(.since.as_ref())
    )]
    NewCard {
        /// The device.
        device: String,
        /// UUID of the card.
        found: String,
        /// Time of the allocation.
        allocated: Timestamp,
        /// When the card was first seen; `None` for a card just added.
        since: Option<Timestamp>,
    },
    /// A card other than the published one is at this address.
    #[error(
        "device {device} was published as {published}, but the card in its place is {found}: delete the pod, so that \
             its claim is allocated anew"
    )]
    OtherCard {
        /// The device.
        device: String,
        /// UUID in the ResourceSlice.
        published: String,
        /// UUID now.
        found: String,
    },
    /// A card allocated whole is in MIG mode, where whole use is impossible, and leaves the mode only by a reset.
    #[error(
        "device {device} ({uuid}) is allocated whole but is in MIG mode, which this card leaves only by a reset: drain the \
             node, then `nvidia-smi -i {uuid} -mig 0` and `nvidia-smi -i {uuid} --gpu-reset`"
    )]
    MigMode {
        /// The device.
        device: String,
        /// UUID of the card.
        uuid: String,
    },
    /// A configuration object of the claim, or of its DeviceClass, can't be understood.
    #[error("the configuration of request {request} in its {origin} is wrong: {reason}")]
    Config {
        /// The request.
        request: String,
        /// Where the object is: `claim` or `DeviceClass`.
        origin: &'static str,
        /// The mistake and the valid values.
        reason: String,
    },
    /// A partition was asked of a card without MIG.
    #[error("device {device} is a partition, but the card {uuid} has no MIG")]
    NoMig {
        /// The device.
        device: String,
        /// UUID of the card.
        uuid: String,
    },
    /// The card does not offer this profile, or not at this placement.
    #[error("device {device}: the card {uuid} has no such partition; it offers {offered}")]
    Profile {
        /// The device.
        device: String,
        /// UUID of the card.
        uuid: String,
        /// The profiles and their placements.
        offered: String,
    },
    /// The GPU instance has no compute instance profile of the requested width.
    #[error(
        "device {device}: a partition {profile} offers no compute instance of {asked} compute slices; it offers {offered}"
    )]
    ComputeSlices {
        /// The device.
        device: String,
        /// The partition's profile.
        profile: String,
        /// The requested width.
        asked: u32,
        /// The available widths.
        offered: String,
    },
    /// A foreign instance occupies the place allocated to the claim. The instance is left alone.
    #[error(
        "device {device}: on the card {uuid} there is {instances}, which Tessera has not made and so leaves alone; \
             destroy it with `nvidia-smi mig` (-dci, then -dgi), or delete the pod so that its claim is allocated anew"
    )]
    ForeignInstance {
        /// The device.
        device: String,
        /// UUID of the card.
        uuid: String,
        /// The instances in the way.
        instances: String,
    },
    /// An existing partition, or one to be looked at with admin access, is not there.
    #[error("device {device}: there is no such partition on the card {uuid} now{note}")]
    NoPartition {
        /// The device.
        device: String,
        /// UUID of the card.
        uuid: String,
        /// A possible reason, beginning with a separator.
        note: &'static str,
    },
    /// MIG mode can't be switched while the card is in use.
    #[error(
        "device {device}: MIG mode of the card {uuid} can't be switched {to}, because the card is in use by {clients}"
    )]
    CardBusy {
        /// The device.
        device: String,
        /// UUID of the card.
        uuid: String,
        /// `on` or `off`.
        to: &'static str,
        /// The programs using the card.
        clients: String,
    },
    /// The claim's pods can't share a device as configured.
    #[error("device {device} can't be shared as it is configured: {reason}")]
    Sharing {
        /// The device.
        device: String,
        /// Cause and remedy.
        reason: String,
    },
    /// A claim configures a time-slice length unsupported by its card. Nothing was touched.
    #[error(
        "claim {claim} configures time-slices of the interval {interval}, and those of device {device}, the card {uuid}, have the \
             driver's own length only: leave the interval out or say Default, or ask for a card that has intervals, by the \
             selector `device.attributes[\"{driver_name}\"].timeSliceIntervals`"
    )]
    TimeSliceIntervals {
        /// The claim.
        claim: String,
        /// The device.
        device: String,
        /// UUID of the card.
        uuid: String,
        /// The configured interval.
        interval: &'static str,
        /// The driver's name, for the attribute's domain.
        driver_name: String,
    },
    /// Sharing of a card or partition by MPS can't be started or ended.
    #[error("device {device} can't be shared by MPS: {reason}")]
    Mps {
        /// The device.
        device: String,
        /// Cause and remedy.
        reason: String,
        /// Whether the obstacle passes by itself.
        may_pass: bool,
    },
    /// A card can't be shared by time as configured.
    #[error("device {device} can't be shared by time: {reason}")]
    TimeSlice {
        /// The device.
        device: String,
        /// Cause and remedy.
        reason: String,
    },
    /// A partition can't be destroyed while programs run in it.
    #[error("partition {device} of the card {uuid} can't be destroyed, because it is in use by {clients}")]
    PartitionBusy {
        /// The partition.
        device: String,
        /// UUID of the card.
        uuid: String,
        /// The programs using the partition.
        clients: String,
    },
    /// A partition left by an ended claim is in the way, and the driver does not destroy the partition.
    #[error(
        "device {device} can't be used before partition {partition} of the card {uuid} is gone, which an ended claim has left: \
             the driver does not destroy it, because of a program that it does not name, mostly DCGM. Restart dcgm-exporter, \
             nv-hostengine and other monitors of the node; or delete the pod, so that its claim is allocated anew"
    )]
    NotReleased {
        /// The requested device.
        device: String,
        /// The partition in its place.
        partition: String,
        /// UUID of the card.
        uuid: String,
    },
    /// The card needs a reset to switch its MIG mode.
    #[error(
        "device {device}: the card {uuid} needs a reset to switch MIG mode {to}: drain the node, then \
             `nvidia-smi -i {uuid} -mig {flag}` and `nvidia-smi -i {uuid} --gpu-reset`, or start the node again",
        flag = u8::from(*.to == "on")
    )]
    ResetNeeded {
        /// The device.
        device: String,
        /// UUID of the card.
        uuid: String,
        /// `on` or `off`.
        to: &'static str,
    },
    /// The driver does not name the device node of a partition.
    #[error(
        "device {device}: {path}: {reason}; containers can't use a partition without it. Check --proc-root and that the \
             nvidia module is loaded with its /proc files"
    )]
    Capability {
        /// The device.
        device: String,
        /// The file below `/proc` expected to name the node.
        path: String,
        /// Problem with the file.
        reason: String,
    },
    /// A call of the driver does not return.
    #[error(transparent)]
    NotAnswering(CallError),
    /// The driver has not answered in time. The work goes on, and the next call gets its answer.
    #[error(
        "{} of the claim has taken {longest:?} and goes on: the driver or a disk is slow or hangs. The kubelet will ask \
             again and have its answer then",
        operation.as_str()
    )]
    Unanswered {
        /// The work.
        operation: Operation,
        /// The time so far.
        longest: Duration,
    },
    /// The claim's CDI spec could not be written or removed.
    #[error(transparent)]
    Cdi(#[from] CdiError),
    /// The claim's journal record could not be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Locking the claim or a card failed.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The plugin is stopping and takes no new work.
    #[error("this instance of the plugin is stopping; the kubelet will ask the next one")]
    Stopping,
    /// The kubelet asked to unprepare the claim while Prepare waited.
    #[error("the kubelet asked to unprepare the claim while preparing it waited; nothing is prepared")]
    Overtaken,
    /// The work on the claim panicked.
    #[error(
        "the work on the claim broke off ({0}): a bug in Tessera, please report it with the plugin's log"
    )]
    Panic(Arc<str>),
}

/// Advice for the case when the driver does not answer about a card.
fn advice(source: &NvmlError) -> &'static str {
    if source.is_unsupported() {
        "this driver cannot do that for this card: no claim can have it on this node"
    } else {
        "see the node's kernel log for NVRM messages, the card may need a reset"
    }
}

/// Names the driver versions found instead.
fn others(found: &BTreeSet<String>) -> String {
    if found.is_empty() {
        return String::new();
    }
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    format!(" (but of {})", found.join(", "))
}

/// When a card came.
fn came(since: Option<&Timestamp>) -> String {
    since.map_or_else(|| "has just come".to_owned(), |since| format!("came at {since}"))
}

impl From<CallError> for PrepareError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotAnswering { .. } => Self::NotAnswering(error),
            CallError::Panic(message) => Self::Panic(message),
            CallError::Stopping => Self::Stopping,
        }
    }
}
