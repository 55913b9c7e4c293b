//! Hooks for metrics about the work on claims.

use std::time::Duration;

/// The kubelet's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `NodePrepareResources`.
    Prepare,
    /// `NodeUnprepareResources`.
    Unprepare,
}

/// A phase of the work on one claim, for measuring durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Waiting for the locks of the claim and of its cards.
    Lock,
    /// Reading the claim from the API server.
    Claim,
    /// Calling the driver about the cards.
    Hardware,
    /// Finding the driver's files: slow once per driver version, then cached.
    DriverFiles,
    /// Reading and writing the journal, without syncs.
    Journal,
    /// Writing the intent and waiting for the sync to the disk.
    Sync,
    /// Writing or removing the claim's CDI spec.
    Cdi,
    /// Waiting for an obstacle to pass, attempts included.
    Wait,
}

/// A change of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HardwareWork {
    /// A GPU instance with its compute instance was made.
    MakePartition,
    /// A GPU instance and its compute instance were destroyed.
    DestroyPartition,
    /// The MIG mode was switched on or off.
    SwitchMode,
    /// A card or partition was shared: the first share, or another one.
    MakeShare,
    /// Sharing ended.
    EndShare,
}

/// Receives all work on claims, for metrics. Called from the claims' tasks, so an observer must not block.
pub trait PrepareObserver: Send + Sync + 'static {
    /// A phase ended after `elapsed`. A phase may occur more than once in one piece of work.
    fn phase(&self, operation: Operation, phase: Phase, succeeded: bool, elapsed: Duration);

    /// Work on a claim begins or stops waiting for `reason` ([`PrepareError::reason`](super::PrepareError::reason))
    /// to pass.
    fn waiting(&self, reason: &'static str, begins: bool);

    /// The work on a claim ended after `elapsed`, counted from the start of its task. `outcome` is `"success"` or
    /// [`PrepareError::reason`](super::PrepareError::reason). Calls joining running work are not counted.
    fn claim(&self, operation: Operation, outcome: &'static str, elapsed: Duration);

    /// A change of a card was made or failed after `elapsed`. `outcome` is `"success"` or
    /// [`PrepareError::reason`](super::PrepareError::reason). Called from blocking threads.
    fn hardware(&self, _work: HardwareWork, _outcome: &'static str, _elapsed: Duration) {}

    /// The plugin's own part of the elapsed time: without locks, the API server, the driver and the disk. Called before
    /// [`PrepareObserver::claim`], and not for work delayed by an obstacle.
    fn own(&self, _operation: Operation, _elapsed: Duration) {}
}

/// An observer without any effect.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Operation {
    /// The operation as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Unprepare => "unprepare",
        }
    }
}

impl HardwareWork {
    /// The change as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MakePartition => "make_partition",
            Self::DestroyPartition => "destroy_partition",
            Self::SwitchMode => "switch_mig_mode",
            Self::MakeShare => "make_share",
            Self::EndShare => "end_share",
        }
    }
}

impl Phase {
    /// All phases, in the order of their first occurrence.
    pub const ALL: [Self; 8] = [
        Self::Lock,
        Self::Claim,
        Self::Hardware,
        Self::DriverFiles,
        Self::Journal,
        Self::Sync,
        Self::Cdi,
        Self::Wait,
    ];

    /// The phase as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Claim => "claim",
            Self::Hardware => "hardware",
            Self::DriverFiles => "driver_files",
            Self::Journal => "journal",
            Self::Sync => "sync",
            Self::Cdi => "cdi",
            Self::Wait => "wait",
        }
    }
}

impl PrepareObserver for NoObserver {
    fn phase(&self, _: Operation, _: Phase, _: bool, _: Duration) {}

    fn waiting(&self, _: &'static str, _: bool) {}

    fn claim(&self, _: Operation, _: &'static str, _: Duration) {}
}
