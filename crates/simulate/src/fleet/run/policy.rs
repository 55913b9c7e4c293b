//! Who chooses.

use std::fmt;
use std::str::FromStr;

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetPolicy {
    /// The decision loop of the controller, all cards of a managed pool.
    Tessera,
    /// kube-scheduler's own scorers, which do not look at devices; its allocator's devices.
    KubeScheduler,
    /// The node with the least free of its cards; the cards with the least free.
    BestFit,
    /// The first node in order; the first devices in published order.
    FirstFit,
    /// Any node; any devices of it.
    Random,
}

/// A name that no policy has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name} for a fleet and a workload; there are {}", FleetPolicy::ALL.map(FleetPolicy::name).join(", "))]
pub struct UnknownFleetPolicy {
    /// As it was given.
    name: String,
}

impl FleetPolicy {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Tessera, Self::KubeScheduler, Self::BestFit, Self::FirstFit, Self::Random];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tessera => "tessera",
            Self::KubeScheduler => "kube-scheduler",
            Self::BestFit => "best-fit",
            Self::FirstFit => "first-fit",
            Self::Random => "random",
        }
    }

    /// Whether runs with other seeds differ.
    #[must_use]
    pub const fn uses_seed(self) -> bool {
        matches!(self, Self::KubeScheduler | Self::Random)
    }
}

impl fmt::Display for FleetPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for FleetPolicy {
    type Err = UnknownFleetPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| UnknownFleetPolicy { name: text.to_owned() })
    }
}
