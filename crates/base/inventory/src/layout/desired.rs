//! The state of a card wanted by a layout.

use std::collections::BTreeSet;

use super::{Layout, LayoutConfig, PlannedInstance, plan};
use crate::machine::{Card, Placement};

/// The state of a card wanted by a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Desired {
    /// The layout has no entry for the card.
    Untouched,
    /// Whole, with MIG mode off.
    Off,
    /// Partitions made on demand, so MIG mode is on if the mode can't be switched on demand.
    OnDemand,
    /// Exactly these instances.
    Fixed(Layout),
    /// The layout is not possible on this card.
    Impossible(String),
}

impl Desired {
    /// The state of a card wanted by a configuration; without a configuration, nothing.
    #[must_use]
    pub fn of(config: Option<&LayoutConfig>, card: &Card) -> Self {
        let Some(entry) = config.and_then(|config| config.for_card(card)) else { return Desired::Untouched };
        let Some(mig) = &card.mig else {
            return match entry.mig_enabled {
                true if card.mig_capable == Some(false) => {
                    Desired::Impossible("the card has no MIG".to_owned())
                }
                true => {
                    Desired::Impossible("the driver does not tell what MIG can make of the card".to_owned())
                }
                false => Desired::Untouched,
            };
        };
        if !entry.mig_enabled {
            return Desired::Off;
        }
        match plan(mig, &entry.mig_devices) {
            Ok(layout) if layout.instances.is_empty() => Desired::OnDemand,
            Ok(layout) => Desired::Fixed(layout),
            Err(error) => Desired::Impossible(error.to_string()),
        }
    }

    /// Whether a card's facts match the wanted state.
    #[must_use]
    pub fn is_seen(&self, card: &Card) -> bool {
        let Some(mig) = &card.mig else { return matches!(self, Desired::Untouched | Desired::Impossible(_)) };
        let key = |placement: Placement, profile| (placement, profile);
        let complete = mig.instances.iter().filter(|instance| instance.compute_instances.len() == 1);
        let there: BTreeSet<_> =
            complete.map(|instance| key(instance.placement, instance.profile_id)).collect();
        let wanted = self.instances().iter().map(|planned| key(planned.placement, planned.profile_id));
        let is_laid_out = there.len() == mig.instances.len() && there == wanted.collect();
        match self {
            Desired::Untouched | Desired::Impossible(_) => true,
            Desired::Off => !mig.mode && is_laid_out,
            Desired::OnDemand => is_laid_out && (mig.mode || !mig.mode_switch_needs_reset),
            Desired::Fixed(_) => mig.mode && is_laid_out,
        }
    }

    /// The complete list of wanted instances.
    #[must_use]
    pub fn instances(&self) -> &[PlannedInstance] {
        match self {
            Desired::Fixed(layout) => &layout.instances,
            _ => &[],
        }
    }
}
