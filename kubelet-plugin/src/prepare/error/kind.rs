//! Consequences of an error: labels, whether the error passes, and who is notified.

use super::PrepareError;

impl PrepareError {
    /// The kind of error as a metric label.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Reference { .. } => "invalid_reference",
            Self::Api { .. } => "api",
            Self::Gone { .. } => "claim_gone",
            Self::Replaced { .. } => "claim_replaced",
            Self::NotAllocated { .. } => "not_allocated",
            Self::ForeignPool { .. } => "foreign_pool",
            Self::Device(_) | Self::UnknownKind(_) => "unknown_device",
            Self::Held { .. } => "held",
            Self::PodsRun { .. } => "pods_run",
            Self::NoDriver { .. } => "no_driver",
            Self::DriverFiles { .. } => "driver_files",
            Self::UnifiedMemory { .. } => "unified_memory",
            Self::Driver(_) | Self::Hardware { .. } => "hardware",
            Self::OtherCard { .. } | Self::NewCard { .. } => "other_card",
            Self::MigMode { .. } => "mig_mode",
            Self::Config { .. }
            | Self::ComputeSlices { .. }
            | Self::Sharing { .. }
            | Self::TimeSliceIntervals { .. } => "invalid_config",
            Self::NoMig { .. } => "no_mig",
            Self::Profile { .. } => "no_profile",
            Self::ForeignInstance { .. } => "foreign_instance",
            Self::NoPartition { .. } => "no_partition",
            Self::CardBusy { .. } => "card_busy",
            Self::PartitionBusy { .. } => "partition_busy",
            Self::NotReleased { .. } => "not_released",
            Self::ResetNeeded { .. } => "reset_needed",
            Self::Mps { .. } => "mps",
            Self::TimeSlice { .. } => "time_slice",
            Self::Capability { .. } => "capability",
            Self::NotAnswering(_) => "not_answering",
            Self::Unanswered { .. } => "unanswered",
            Self::Cdi(_) => "cdi",
            Self::Journal(_) | Self::Lock(_) => "journal",
            Self::Busy { .. } => "busy",
            Self::Stopping => "stopping",
            Self::Overtaken => "overtaken",
            Self::Panic(_) => "panic",
        }
    }

    /// Whether this passes by itself, so Prepare waits. Everything else needs somebody to act, or the claim has been replaced.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Api { may_pass, .. } => *may_pass,
            Self::Held { leaving, .. } => leaving.is_some(),
            Self::Mps { may_pass, .. } => *may_pass,
            Self::NoDriver { .. }
            | Self::Busy { .. }
            | Self::PodsRun { .. }
            | Self::CardBusy { .. }
            | Self::PartitionBusy { .. }
            | Self::NotAnswering(_) => true,
            _ => false,
        }
    }

    /// UID of the claim whose end the work waits for.
    pub(in crate::prepare) fn holder(&self) -> Option<&str> {
        match self {
            Self::Held { leaving, .. } => leaving.as_deref(),
            _ => None,
        }
    }

    /// The Event reason for waiting on this error.
    pub(in crate::prepare) const fn waiting_reason(&self) -> &'static str {
        match self {
            Self::Held { .. } => "DeviceHeld",
            Self::NoDriver { .. } => "DriverNotReady",
            Self::Api { .. } => "APIServerNotReady",
            Self::PodsRun { .. } => "PodsRun",
            Self::CardBusy { .. } => "CardBusy",
            Self::PartitionBusy { .. } => "PartitionBusy",
            Self::Mps { .. } => "MPSNotReady",
            Self::NotAnswering(_) => "CardNotAnswering",
            _ => "PrepareWaiting",
        }
    }

    /// Whether an Event reports the end of work with this error. Not for errors with the only effect of postponing the work.
    pub(in crate::prepare) const fn is_news(&self) -> bool {
        !matches!(self, Self::Stopping | Self::Overtaken | Self::Reference { .. })
    }
}
