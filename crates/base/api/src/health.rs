//! Faults of a card, their effect on claims, and their recovery. The defaults' sources are in `docs/health.md`.

mod policy;
mod xid_catalog;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::facts::Placement;

pub use policy::{HealthPolicy, HealthPolicyError, OwnRecovery};
use xid_catalog::XidEntry;

/// A kind of fault. Ordered by severity: messages name the most severe fault first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthClass {
    /// The card fell off the bus, or its driver is gone.
    Lost,
    /// A call of the driver about the card does not return.
    NotAnswering,
    /// The files of the loaded driver are not on the node.
    DriverFiles,
    /// A partition of an ended claim stays: the driver reports the partition as in use and does not name the program.
    PartitionNotReleased,
    /// The driver does not report the number of its device node, required for use in containers.
    MinorNumber,
    /// The driver reported an error (XID).
    Xid,
    /// The driver recommends a recovery (`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`), whatever the cause.
    RecoveryAction,
    /// Rows of its memory could not be remapped: no spare ones are left (Ampere and later).
    RowRemapFailed,
    /// Its memory had an uncorrectable error since the driver was loaded.
    EccUncorrectable,
    /// Rows of its memory are remapped at the next reset (Ampere and later).
    RowRemapPending,
    /// Pages of its memory are retired when the driver is loaded again (before Ampere).
    RetiredPagesPending,
    /// Its registration with the NVLink fabric failed, or the fabric reports a fault of its routes or bandwidth.
    Fabric,
    /// Confidential computing mode is on, and the card takes no work before being declared attested.
    ConfComputeNotReady,
    /// The card is not registered with its NVLink fabric yet.
    FabricNotReady,
    /// An NVLink that worked before is down.
    NvlinkDown,
    /// The hardware halves its clocks, or more, because of heat.
    Thermal,
    /// The hardware halves its clocks, or more, at the power supply's request.
    PowerBrake,
}

/// Effect of a fault on claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HealthEffect {
    /// The fault is neither reported nor acted on.
    Off,
    /// The fault is reported in Events and in the status of pods; the devices stay unchanged.
    Informational,
    /// The devices get no new claims.
    NoSchedule,
    /// The devices get no new claims, and Kubernetes evicts their pods unless they tolerate the taint.
    NoExecute,
}

/// Action that makes a card healthy again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Recovery {
    /// None: the fault passes by itself.
    None,
    /// Programs that use peer-to-peer access of the card must end (`NVML_GPU_RECOVERY_ACTION_DRAIN_P2P`).
    DrainPeerToPeer,
    /// A reset of the card (`NVML_GPU_RECOVERY_ACTION_GPU_RESET`).
    Reset,
    /// A reset of the card when its programs have ended (`NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET`).
    DrainAndReset,
    /// A restart of the node (`NVML_GPU_RECOVERY_ACTION_NODE_REBOOT`).
    Reboot,
    /// A recovery of the card's IMEX domain (`NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN`).
    RecoverImexDomain,
    /// A reset of the card's PCIe bus (`NVML_GPU_RECOVERY_ACTION_BUS_RESET`).
    BusReset,
    /// A restart of the system (`NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT`).
    SystemReboot,
    /// An action of a newer driver, with this number of `nvmlGpuRecoveryAction_t`.
    Unknown(u64),
    /// The action in NVIDIA's catalog of XIDs, neither a reset nor a restart. From this table only; drivers never recommend it.
    Catalog,
    /// A restart of the programs that have the card open and are not named by its driver. From this table only.
    RestartMonitors,
    /// Another card. From this table only; drivers never recommend a replacement.
    Replace,
}

/// A fault of a card or a part of a card, as reported by its driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HealthFault {
    /// Its kind.
    pub class: HealthClass,
    /// The number of the XID, with the class [`HealthClass::Xid`] only.
    pub xid: Option<u64>,
    /// The memory slices of the affected GPU instance; `None` for the whole card.
    pub slices: Option<Placement>,
    /// The recovery.
    pub recovery: Recovery,
}

impl HealthClass {
    /// All classes.
    pub const ALL: [Self; 17] = [
        Self::Lost,
        Self::NotAnswering,
        Self::DriverFiles,
        Self::PartitionNotReleased,
        Self::MinorNumber,
        Self::Xid,
        Self::RecoveryAction,
        Self::RowRemapFailed,
        Self::EccUncorrectable,
        Self::RowRemapPending,
        Self::RetiredPagesPending,
        Self::Fabric,
        Self::ConfComputeNotReady,
        Self::FabricNotReady,
        Self::NvlinkDown,
        Self::Thermal,
        Self::PowerBrake,
    ];

    /// The name in options, taints and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::NotAnswering => "not-answering",
            Self::DriverFiles => "driver-files",
            Self::PartitionNotReleased => "partition-not-released",
            Self::MinorNumber => "minor-number",
            Self::Xid => "xid",
            Self::RecoveryAction => "recovery-action",
            Self::RowRemapFailed => "row-remap-failed",
            Self::EccUncorrectable => "ecc-uncorrectable",
            Self::RowRemapPending => "row-remap-pending",
            Self::RetiredPagesPending => "retired-pages-pending",
            Self::Fabric => "fabric",
            Self::ConfComputeNotReady => "conf-compute-not-ready",
            Self::FabricNotReady => "fabric-not-ready",
            Self::NvlinkDown => "nvlink-down",
            Self::Thermal => "thermal",
            Self::PowerBrake => "power-brake",
        }
    }

    /// The fault, as the end of a sentence about the card.
    const fn words(self) -> &'static str {
        match self {
            Self::Lost => "does not answer: it fell off the bus or its driver is gone",
            Self::NotAnswering => "does not answer: a call of the driver about it hangs",
            Self::DriverFiles => {
                "can give pods no CUDA: the files of the driver that is loaded are not on the node"
            }
            Self::PartitionNotReleased => "can't be freed of what an ended claim has left",
            Self::MinorNumber => {
                "cannot be given to containers: its driver does not tell the number of its device node"
            }
            Self::Xid => "had an error",
            Self::RecoveryAction => "needs a recovery, as its driver says",
            Self::RowRemapFailed => "has no spare rows of memory left for faulty ones",
            Self::EccUncorrectable => "had memory errors that could not be corrected",
            Self::RowRemapPending => "has faulty rows of memory that are remapped at its next reset",
            Self::RetiredPagesPending => {
                "has faulty pages of memory that are retired when the driver is loaded again"
            }
            Self::Fabric => "has a fault of its NVLink fabric",
            Self::ConfComputeNotReady => {
                "takes no work: in confidential computing it waits for `nvidia-smi conf-compute -srs 1` on the node, after its \
                 attestation"
            }
            Self::FabricNotReady => {
                "starts no CUDA program before NVIDIA's fabric manager has registered it with its NVLink fabric"
            }
            Self::NvlinkDown => "has an NVLink that is down",
            Self::Thermal => "is too hot: the hardware slows it down",
            Self::PowerBrake => "is slowed down by the power supply",
        }
    }

    /// The recovery where the driver recommends nothing.
    #[must_use]
    pub const fn recovery(self) -> Recovery {
        match self {
            Self::Lost | Self::DriverFiles => Recovery::Reboot,
            Self::PartitionNotReleased => Recovery::RestartMonitors,
            Self::NotAnswering
            | Self::Xid
            | Self::RecoveryAction
            | Self::EccUncorrectable
            | Self::RowRemapPending
            | Self::RetiredPagesPending
            | Self::Fabric
            | Self::NvlinkDown => Recovery::Reset,
            Self::RowRemapFailed => Recovery::Replace,
            Self::MinorNumber
            | Self::ConfComputeNotReady
            | Self::FabricNotReady
            | Self::Thermal
            | Self::PowerBrake => Recovery::None,
        }
    }
}

impl HealthClass {
    /// Whether the driver's recommended recovery for a card tells how bad such a fault is. The recommendation weighs XIDs and memory
    /// errors, and is none for a usable card.
    const fn is_judged_by_driver(self) -> bool {
        matches!(self, Self::Xid | Self::EccUncorrectable | Self::RowRemapPending)
    }
}

impl HealthEffect {
    /// The effect of the devices' taint; `None` for effects without a taint.
    #[must_use]
    pub const fn taint_effect(self) -> Option<&'static str> {
        match self {
            Self::Off | Self::Informational => None,
            Self::NoSchedule => Some(crate::taint::EFFECT_NO_SCHEDULE),
            Self::NoExecute => Some(crate::taint::EFFECT_NO_EXECUTE),
        }
    }
}

impl Recovery {
    /// The meaning of `nvmlGpuRecoveryAction_t`.
    #[must_use]
    pub const fn from_nvml(number: u64) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Reset,
            2 => Self::Reboot,
            3 => Self::DrainPeerToPeer,
            4 => Self::DrainAndReset,
            5 => Self::RecoverImexDomain,
            6 => Self::BusReset,
            7 => Self::SystemReboot,
            _ => Self::Unknown(number),
        }
    }

    /// Whether the recovery resets the card.
    #[must_use]
    pub const fn is_reset(self) -> bool {
        matches!(self, Self::Reset | Self::DrainAndReset | Self::Reboot | Self::BusReset | Self::SystemReboot)
    }

    /// The action in words; `None` where nothing has to be done.
    #[must_use]
    pub fn words(self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::None => return None,
            Self::DrainPeerToPeer => "end the programs that use peer-to-peer access",
            Self::Reset => "reset the card",
            Self::DrainAndReset => "let the card's programs end, then reset the card",
            Self::Reboot => "reboot the node",
            Self::RecoverImexDomain => "recover the card's IMEX domain",
            Self::BusReset => "reset the card's PCIe bus",
            Self::SystemReboot => "reboot the system",
            Self::Catalog => "do what NVIDIA's catalog of XIDs says",
            Self::RestartMonitors => {
                "restart the node's monitors that have it open, mostly DCGM (dcgm-exporter, nv-hostengine); the driver names no \
                 program"
            }
            Self::Replace => "replace the card",
            Self::Unknown(number) => {
                return Some(Cow::Owned(format!(
                    "the driver recommends recovery action {number}, which is not known here: see its documentation"
                )));
            }
        }))
    }
}

impl HealthFault {
    /// A fault of the whole card, of a class other than [`HealthClass::Xid`], with the class's recovery.
    #[must_use]
    pub const fn new(class: HealthClass) -> Self {
        Self { class, xid: None, slices: None, recovery: class.recovery() }
    }

    /// An XID of the whole card, or of the GPU instance in these memory slices, with the recovery of NVIDIA's catalog.
    #[must_use]
    pub fn xid(xid: u64, slices: Option<Placement>) -> Self {
        let recovery = XidEntry::of(xid).map_or(HealthClass::Xid.recovery(), XidEntry::recovery);
        Self { class: HealthClass::Xid, xid: Some(xid), slices, recovery }
    }

    /// A partition of an ended claim in these memory slices, left undestroyed by the driver.
    #[must_use]
    pub const fn partition_not_released(slices: Placement) -> Self {
        Self { slices: Some(slices), ..Self::new(HealthClass::PartitionNotReleased) }
    }

    /// The same fault with the driver's recommended recovery for the card, `None` if the driver gives no recommendations. The recovery
    /// counts unless the table knows that nothing has to be done or that no reset helps. Without a recommended recovery, a fault
    /// judged better by the driver than by the table needs nothing.
    #[must_use]
    pub fn with_recommendation(self, recommended: Option<Recovery>) -> Self {
        let own = self.xid.map_or(self.class.recovery(), |xid| Self::xid(xid, None).recovery);
        let recovery = match (own, recommended) {
            (_, Some(Recovery::None)) if self.class.is_judged_by_driver() => Recovery::None,
            (Recovery::None | Recovery::Replace | Recovery::RestartMonitors, _)
            | (_, None | Some(Recovery::None)) => own,
            (_, Some(recovery)) => recovery,
        };
        Self { recovery, ..self }
    }

    /// Whether the driver, asked for a recovery of the card, considers none necessary for this fault.
    const fn is_no_fault_to_driver(&self) -> bool {
        self.class.is_judged_by_driver() && matches!(self.recovery, Recovery::None)
    }

    /// The value of the taint: the class's name, or `xid-79`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.xid {
            Some(xid) => format!("xid-{xid}"),
            None => self.class.name().to_owned(),
        }
    }

    /// Whether the fault concerns a device taking these memory slices of the card, or all of the card.
    #[must_use]
    pub fn concerns(&self, slices: Option<Placement>) -> bool {
        match (self.slices, slices) {
            (Some(own), Some(of_device)) => own.overlaps(of_device),
            _ => true,
        }
    }
}

impl fmt::Display for HealthFault {
    /// The fault and its recovery, as the end of a sentence about the card.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.class.words())?;
        match self.xid {
            Some(xid) if XidEntry::of(xid).is_some() => write!(formatter, " (xid-{xid})")?,
            Some(xid) => {
                let date = xid_catalog::date();
                write!(formatter, " (xid-{xid}, for which NVIDIA's catalog of {date} has no action)")?;
            }
            None => write!(formatter, " ({})", self.class.name())?,
        }
        if let Some(Placement { start, size }) = self.slices {
            write!(formatter, " in the partition at memory slices {start} to {}", start + size.max(1) - 1)?;
        }
        match self.recovery.words() {
            Some(words) => write!(formatter, ": {words}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_name_and_is_told_from_the_others() {
        for class in HealthClass::ALL {
            let json = serde_json::to_value(class).unwrap();
            assert_eq!(json, class.name());
            assert!(crate::limits::is_label_value(class.name()));
            assert_eq!(serde_json::from_value::<HealthClass>(json).unwrap(), class);
        }
        let mut names: Vec<_> = HealthClass::ALL.map(HealthClass::name).into();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), HealthClass::ALL.len());
    }

    #[test]
    fn a_fault_of_a_partition_concerns_what_overlaps_it() {
        let at = |start, size| Some(Placement { start, size });
        let fault = HealthFault::xid(94, at(2, 2));
        assert!(fault.concerns(None), "the whole card has the partition's memory");
        assert!(fault.concerns(at(3, 1)) && fault.concerns(at(0, 4)) && fault.concerns(at(2, 2)));
        assert!(!fault.concerns(at(0, 2)) && !fault.concerns(at(4, 4)));
        assert!(HealthFault::new(HealthClass::Thermal).concerns(at(4, 4)));
    }

    #[test]
    fn what_the_driver_recommends_counts() {
        let recovery = |fault: HealthFault, recommended| fault.with_recommendation(recommended).recovery;
        let xid = HealthFault::xid;
        assert_eq!(recovery(xid(48, None), None), Recovery::Reset);
        assert_eq!(recovery(xid(79, None), None), Recovery::Reboot);
        assert_eq!(recovery(xid(79, None), Some(Recovery::Reset)), Recovery::Reset);
        assert_eq!(recovery(xid(94, None), Some(Recovery::Reset)), Recovery::None, "the table knows");
        for class in HealthClass::ALL {
            let none = recovery(HealthFault::new(class), Some(Recovery::None));
            let judged = [HealthClass::Xid, HealthClass::EccUncorrectable, HealthClass::RowRemapPending];
            let expected = if judged.contains(&class) { Recovery::None } else { class.recovery() };
            assert_eq!(none, expected, "{class:?}");
        }
        let spared = xid(48, None).with_recommendation(Some(Recovery::None));
        assert_eq!(
            recovery(spared, Some(Recovery::Reboot)),
            Recovery::Reboot,
            "and counts anew in each look"
        );
    }

    #[test]
    fn a_recovery_of_a_newer_driver_is_told_by_its_number() {
        let fault = HealthFault::new(HealthClass::RecoveryAction);
        let told = |number| fault.clone().with_recommendation(Some(Recovery::from_nvml(number))).to_string();
        assert!(told(5).ends_with(": recover the card's IMEX domain"), "{}", told(5));
        assert!(told(23).contains("recovery action 23, which is not known here"), "{}", told(23));
    }

    #[test]
    fn a_fault_says_what_helps() {
        assert_eq!(
            HealthFault::xid(48, Some(Placement { start: 2, size: 2 })).to_string(),
            "had an error (xid-48) in the partition at memory slices 2 to 3: reset the card"
        );
        assert_eq!(HealthFault::xid(94, None).to_string(), "had an error (xid-94)");
        let unknown = HealthFault::xid(9999, None).to_string();
        assert!(unknown.contains("catalog of 20") && unknown.ends_with(": reset the card"), "{unknown}");
        assert_eq!(
            HealthFault::partition_not_released(Placement { start: 0, size: 1 }).to_string(),
            "can't be freed of what an ended claim has left (partition-not-released) in the partition at memory slices 0 to 0: \
             restart the node's monitors that have it open, mostly DCGM (dcgm-exporter, nv-hostengine); the driver names no program"
        );
        assert_eq!(
            HealthFault::new(HealthClass::Thermal).to_string(),
            "is too hot: the hardware slows it down (thermal)"
        );
    }
}
