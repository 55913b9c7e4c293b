//! Whether two claims may use a card at once.

use tessera_api::facts::Placement;
use tessera_api::{DeviceName, PciBusId};

use crate::prepare::claim::DeviceNeed;
use tessera_journal::ClaimDevice;

/// How a claim uses a card, for deciding whether two claims may use the card at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prepare) struct Use<'a> {
    card: PciBusId,
    pub device: &'a str,
    extent: Extent,
    is_share: bool,
    admin_access: bool,
}

/// The part of its card taken by a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Whole,
    /// The memory slices of a GPU instance. `compute_instance` is set for one of several compute instances of the GPU instance,
    /// made by an administrator.
    Slices {
        slices: Placement,
        compute_instance: Option<u32>,
    },
}

impl<'a> Use<'a> {
    pub fn of_record(device: &'a ClaimDevice) -> Self {
        let extent = device.partition.as_ref().map_or(Extent::Whole, |partition| Extent::Slices {
            slices: partition.placement,
            compute_instance: existing_compute_instance(device.device.parse().ok().as_ref()),
        });
        Self {
            card: device.card,
            device: &device.device,
            extent,
            is_share: device.share_id.is_some(),
            admin_access: device.admin_access,
        }
    }

    pub fn of_need(need: &'a DeviceNeed) -> Self {
        let extent = need.partition.as_ref().map_or(Extent::Whole, |partition| Extent::Slices {
            slices: partition.placement,
            compute_instance: existing_compute_instance(Some(&need.allocated.device)),
        });
        Self {
            card: need.allocated.device.card(),
            device: &need.name,
            extent,
            is_share: need.allocated.share_id.is_some(),
            admin_access: need.allocated.admin_access,
        }
    }

    /// A device known only by name: assumed to take the whole card.
    pub const fn of_whole_card(card: PciBusId, device: &'a str) -> Self {
        Self { card, device, extent: Extent::Whole, is_share: false, admin_access: false }
    }

    /// Whether the counters of the card forbid both uses together.
    ///
    /// Admin access draws on no counter, and all shares of one device draw once together. Partitions draw on their memory slices.
    /// Everything else draws on the whole card, including a device known only to another version of the plugin.
    pub fn conflicts_with(self, other: Use<'_>) -> bool {
        let shares_of_one_device = self.is_share && other.is_share && self.device == other.device;
        self.card == other.card
            && !self.admin_access
            && !other.admin_access
            && !shares_of_one_device
            && self.extent.meets(other.extent)
    }
}

impl Extent {
    fn meets(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Slices { slices, compute_instance: one },
                Self::Slices { slices: others, compute_instance: other },
            ) => {
                let side_by_side =
                    slices == others && one.zip(other).is_some_and(|(one, other)| one != other);
                slices.overlaps(others) && !side_by_side
            }
            _ => true,
        }
    }
}

fn existing_compute_instance(device: Option<&DeviceName>) -> Option<u32> {
    Some(device?.partition()?.existing?.compute_instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_counters() {
        let card: PciBusId = "0000:3b:00.0".parse().unwrap();
        let other: PciBusId = "0000:5e:00.0".parse().unwrap();
        let whole = Use::of_whole_card(card, "gpu-3b-00");
        let share = Use { device: "gpu-3b-00-ts", is_share: true, ..whole };
        let other_share = Use { device: "gpu-3b-00-mps", ..share };
        let admin = Use { admin_access: true, ..whole };
        let partition = |device, start, size| Use {
            device,
            extent: Extent::Slices { slices: Placement { start, size }, compute_instance: None },
            ..whole
        };
        let large = partition("gpu-3b-00-mig-3g40gb-4", 4, 4);
        let small = partition("gpu-3b-00-mig-1g10gb-6", 6, 1);
        let beside = partition("gpu-3b-00-mig-1g10gb-3", 3, 1);

        assert!(whole.conflicts_with(whole));
        assert!(whole.conflicts_with(share) && share.conflicts_with(whole));
        assert!(share.conflicts_with(other_share));
        assert!(!share.conflicts_with(share));
        assert!(!whole.conflicts_with(Use::of_whole_card(other, "gpu-5e-00")));
        for part in [large, small, beside] {
            assert!(whole.conflicts_with(part) && part.conflicts_with(share) && part.conflicts_with(part));
        }
        assert!(large.conflicts_with(small) && small.conflicts_with(large));
        assert!(!large.conflicts_with(beside) && !beside.conflicts_with(large));
        assert!(!small.conflicts_with(Use { card: other, ..small }));
        for any in [whole, share, admin, large] {
            assert!(!admin.conflicts_with(any) && !any.conflicts_with(admin));
        }
    }

    #[test]
    fn the_compute_instance_is_known_by_the_devices_name() {
        for (name, instance) in [
            ("gpu-3b-00-mig-3g40gb-4-gi2-ci0", Some(0)),
            ("gpu-3b-00-mig-3g40gb-4-gi2-ci3", Some(3)),
            ("gpu-3b-00-mig-3g40gb-4", None),
            ("gpu-3b-00", None),
        ] {
            let device: DeviceName = name.parse().unwrap();
            assert_eq!(existing_compute_instance(Some(&device)), instance, "{name}");
        }
        assert_eq!(existing_compute_instance(None), None);
    }

    #[test]
    fn compute_instances_of_one_gpu_instance_are_side_by_side() {
        let card: PciBusId = "0000:3b:00.0".parse().unwrap();
        let of = |device, start, size, compute_instance| Use {
            extent: Extent::Slices { slices: Placement { start, size }, compute_instance },
            ..Use::of_whole_card(card, device)
        };
        let (one, other) = (of("a", 4, 4, Some(0)), of("b", 4, 4, Some(1)));
        assert!(!one.conflicts_with(other));
        assert!(one.conflicts_with(one));
        assert!(one.conflicts_with(of("c", 4, 4, None)));
        assert!(one.conflicts_with(of("d", 6, 2, Some(1))));
    }
}
