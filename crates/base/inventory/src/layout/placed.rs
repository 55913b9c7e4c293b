use std::fmt;

use super::room::Room;
use crate::machine::{GpuInstanceProfile, Placement};

/// The GPU instances of a card and their placements, sorted by placement.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layout {
    /// The instances.
    pub instances: Vec<PlannedInstance>,
}

/// A GPU instance of a [`Layout`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedInstance {
    /// Its memory slices.
    pub placement: Placement,
    /// [`GpuInstanceProfile::id`] of its profile.
    pub profile_id: u32,
    /// Name of its profile.
    pub profile: String,
}

impl Layout {
    pub(super) fn of(room: &Room<'_>) -> Self {
        let instance = |&(profile, placement): &(&GpuInstanceProfile, Placement)| PlannedInstance {
            placement,
            profile_id: profile.id,
            profile: profile.name.clone(),
        };
        let mut instances: Vec<_> = room.placed().iter().map(instance).collect();
        instances.sort();
        Layout { instances }
    }
}

/// `1g.10gb at 0, 2g.20gb at 2`
impl fmt::Display for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, PlannedInstance { profile, placement, .. }) in self.instances.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(formatter, "{comma}{profile} at {}", placement.start)?;
        }
        Ok(())
    }
}
