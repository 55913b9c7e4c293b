use serde::{Deserialize, Serialize};

use super::OfferError;
use crate::profile_spelling::ProfileSpelling;

/// Pattern for the API server, accepting the same profiles as [`ProfileSpelling`].
#[cfg(feature = "crd")]
pub(super) const PROFILE: &str =
    r"^([1-9][0-9]*c\.)?[1-9][0-9]*g\.[1-9][0-9]*gb([-+][a-z][a-z0-9]*(\.[a-z][a-z0-9]*)*)*$";

/// Which MIG partitions are offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "crd",
    schemars(extend("x-kubernetes-validations" = [{
        "rule": "!has(self.profiles) || self.mode != 'None'",
        "message": "with mode None no partitions are made; leave the profiles out",
    }]))
)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Partitioning {
    /// Whether partitions are created as claims ask for them.
    pub mode: PartitioningMode,
    /// The profiles that are offered, as NVIDIA writes them (`1g.10gb`). Absent means all without attributes (`+me`,
    /// `+gfx`, `-me`), and those that `sharing.mps.partitions` names. Profiles that a card does not have are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(length(max = 64), inner(length(max = 32), regex(pattern = PROFILE))))]
    pub profiles: Option<Vec<String>>,
    /// The order in which the placements of a profile are tried.
    pub placement_order: PlacementOrder,
    /// What is published of the partitions of a card that a claim holds whole: `All`, or `First`: one of them. `First` only with
    /// allocation Native, and not with a cluster-autoscaler.
    #[serde(skip_serializing_if = "is_all")]
    pub of_held_cards: OfHeldCards,
}

fn is_all(of_held_cards: &OfHeldCards) -> bool {
    *of_held_cards == OfHeldCards::All
}

/// What is published of the partitions of a card that a claim holds whole: nobody can have one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum OfHeldCards {
    /// All of them. kube-scheduler evaluates the selectors of each claim on each of them, on every node.
    #[default]
    All,
    /// The first one alone; the others from the end of the claim on. Only where kube-scheduler allocates alone: others plan with all partitions.
    /// Not with a cluster-autoscaler: the slices of a node whose cards are held would be its model of a new node.
    First,
}

/// Whether partitions are created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum PartitioningMode {
    /// As claims ask for them; destroyed when no claim needs them.
    #[default]
    OnDemand,
    /// Never. Partitions that exist already are still offered.
    None,
}

/// A rule by which the placements of each profile are tried. kube-scheduler takes the first that fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum PlacementOrder {
    /// First the placement that wastes the least compute and keeps the large profiles possible.
    #[default]
    Balanced,
    /// First the placement that takes away the fewest placements of other profiles, from the end of the card: better
    /// where more than about a tenth of the requests are for half a card.
    HighestStart,
}

impl Partitioning {
    pub(super) fn check(&self) -> Result<(), OfferError> {
        let Some(profiles) = &self.profiles else { return Ok(()) };
        check_profiles("partitioning.profiles", profiles)?;
        if self.mode == PartitioningMode::None {
            let reason = "with mode None no partitions are made; leave the profiles out".to_owned();
            return Err(OfferError::Value { field: "partitioning.profiles", reason });
        }
        Ok(())
    }
}

pub(super) fn check_profiles(field: &'static str, profiles: &[String]) -> Result<(), OfferError> {
    for profile in profiles {
        ProfileSpelling::of_profile(profile)
            .map_err(|error| OfferError::Value { field, reason: error.to_string() })?;
    }
    Ok(())
}
