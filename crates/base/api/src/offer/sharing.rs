use serde::{Deserialize, Serialize};

use super::OfferError;
#[cfg(feature = "crd")]
use super::partitioning::PROFILE;
use super::partitioning::check_profiles;

/// Which shares a node offers. A card is shared in one way at a time: the first claim decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Sharing {
    /// Shares by MPS, with limits on memory and compute; absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mps: Option<Mps>,
    /// Time-slices; absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_slicing: Option<TimeSlicing>,
    /// Whole cards and partitions that several claims have at once, as NVIDIA's driver offers them by its feature
    /// `ConsumableShares`; absent means that each is one claim's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumable_shares: Option<ConsumableShares>,
    /// The consequence for claims of devices that limit nobody's memory, time-slices above all, whose programs hold more of it than
    /// they were promised.
    #[serde(skip_serializing_if = "OnOveruse::is_tell")]
    pub on_overuse: OnOveruse,
}

/// The consequence of holding more memory than promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum OnOveruse {
    /// A condition of the claim's devices, and Events on its pods and on those of the neighbours that it endangers.
    #[default]
    Tell,
    /// The pods of the claim furthest above its part are evicted, too, once a neighbour could not get what it was promised.
    Evict,
}

impl OnOveruse {
    /// Whether this is [`Self::Tell`].
    #[must_use]
    pub fn is_tell(&self) -> bool {
        *self == Self::Tell
    }
}

/// Shares by MPS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "crd",
    schemars(extend("x-kubernetes-validations" = [
        {
            "rule": "self.cards || !self.staticPartitions",
            "message": "staticPartitions needs cards: MIG partitions have no static partitions",
        },
        {
            "rule": "self.cards || size(self.partitions) > 0",
            "message": "shares neither cards nor partitions; leave mps out instead",
        },
    ]))
)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Mps {
    /// Whether cards are shared.
    pub cards: bool,
    /// The MIG profiles whose partitions are shared, too (`3g.40gb`).
    #[cfg_attr(feature = "crd", schemars(length(max = 64), inner(length(max = 32), regex(pattern = PROFILE))))]
    pub partitions: Vec<String>,
    /// Whether shares of cards have multiprocessors of their own (NVIDIA's static SM partitioning, CUDA 13.1 and
    /// Ampere or later). Cards that cannot do this are then not shared by MPS; for partitions nothing changes.
    pub static_partitions: bool,
    /// A share without a requested size gets the card's memory and compute divided by this number, so that this many
    /// always fit. 1 to 100.
    #[cfg_attr(feature = "crd", schemars(range(min = 1, max = 100)))]
    pub default_shares: u32,
    /// The most clients (processes) of one card. Can only lower the hardware's limit, which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(range(min = 1)))]
    pub max_clients: Option<u32>,
}

impl Default for Mps {
    fn default() -> Self {
        Self {
            cards: true,
            partitions: Vec::new(),
            static_partitions: false,
            default_shares: 4,
            max_clients: None,
        }
    }
}

/// Time-slices of whole cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimeSlicing {
    /// How many claims share one card, 2 or more.
    #[cfg_attr(feature = "crd", schemars(range(min = 2, max = 1024)))]
    pub replicas: u32,
    /// How long each runs before the next one's turn.
    #[serde(default)]
    pub interval: TimeSliceInterval,
}

/// How many claims have a whole card or a partition at once, by what they ask for. Nothing holds a program to what its claim
/// asks for: programs take turns, and each sees all of the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "crd",
    schemars(extend("x-kubernetes-validations" = [{
        "rule": "(self.mode == 'Shares') == has(self.shares)",
        "message": "mode Shares needs shares, and no other mode has them",
    }]))
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsumableShares {
    /// What limits the claims of one device.
    pub mode: ConsumableSharesMode,
    /// With mode `Shares`: how many there are of each device, 2 or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(range(min = 2, max = 1024)))]
    pub shares: Option<u32>,
}

/// What limits the claims of one device, as the values `unlimited`, `memory` and a number of NVIDIA's chart do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum ConsumableSharesMode {
    /// Nothing, except memory for those that ask for some.
    Unlimited,
    /// The memory that each asks for. A claim that asks for none has all of it.
    Memory,
    /// The number of shares, of which each claim has one if it asks for no more; and memory for those that ask for some.
    Shares,
}

/// Length of a time-slice, as `nvidia-smi compute-policy --set-timeslice` takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum TimeSliceInterval {
    /// The driver's own (0).
    #[default]
    Default,
    /// 1.
    Short,
    /// 2.
    Medium,
    /// 3.
    Long,
}

impl TimeSliceInterval {
    /// As configurations spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "Default",
            Self::Short => "Short",
            Self::Medium => "Medium",
            Self::Long => "Long",
        }
    }

    /// The number that `nvidia-smi compute-policy --set-timeslice` takes.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Default => 0,
            Self::Short => 1,
            Self::Medium => 2,
            Self::Long => 3,
        }
    }
}

/// A generous limit on time-slices, to catch typing errors.
const MAX_REPLICAS: u32 = 1024;

impl Sharing {
    pub(super) fn check(&self) -> Result<(), OfferError> {
        let error = |field, reason: &str| Err(OfferError::Value { field, reason: reason.to_owned() });
        if let Some(mps) = &self.mps {
            check_profiles("sharing.mps.partitions", &mps.partitions)?;
            if !(1..=100).contains(&mps.default_shares) {
                return error("sharing.mps.defaultShares", "must be from 1 to 100");
            }
            if mps.max_clients == Some(0) {
                return error(
                    "sharing.mps.maxClients",
                    "must be 1 or more; leave it out for the hardware's limit",
                );
            }
            if mps.static_partitions && !mps.cards {
                return error(
                    "sharing.mps.staticPartitions",
                    "needs sharing.mps.cards: MIG partitions have no static partitions",
                );
            }
            if !mps.cards && mps.partitions.is_empty() {
                return error("sharing.mps", "shares neither cards nor partitions; leave mps out instead");
            }
        }
        match &self.time_slicing {
            Some(slicing) if !(2..=MAX_REPLICAS).contains(&slicing.replicas) => {
                return error("sharing.timeSlicing.replicas", "must be from 2 to 1024");
            }
            _ => {}
        }
        let field = "sharing.consumableShares.shares";
        match self.consumable_shares {
            Some(ConsumableShares { mode: ConsumableSharesMode::Shares, shares }) => match shares {
                None => error(field, "must be there with mode Shares"),
                Some(shares) if !(2..=MAX_REPLICAS).contains(&shares) => {
                    error(field, "must be from 2 to 1024")
                }
                Some(_) => Ok(()),
            },
            Some(ConsumableShares { shares: Some(_), .. }) => error(field, "is of mode Shares only"),
            _ => Ok(()),
        }
    }
}
