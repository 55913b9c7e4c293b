use tessera_api::PciBusId;

use super::allocation::AllocatedDevice;
use crate::journal::ClaimDevice;

/// How a claim uses a card, for telling whether two claims may use it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use<'a> {
    card: PciBusId,
    device: &'a str,
    is_share: bool,
    admin_access: bool,
}

impl<'a> Use<'a> {
    pub(super) fn of_record(device: &'a ClaimDevice) -> Self {
        Self {
            card: device.card,
            device: &device.device,
            is_share: device.share_id.is_some(),
            admin_access: device.admin_access,
        }
    }

    pub(super) fn of_allocation(allocated: &AllocatedDevice, device: &'a str) -> Self {
        Self {
            card: allocated.device.card(),
            device,
            is_share: allocated.share_id.is_some(),
            admin_access: allocated.admin_access,
        }
    }

    /// Of a device known by nothing but its name: taken to hold all of its card.
    pub(super) const fn of_whole_card(card: PciBusId, device: &'a str) -> Self {
        Self { card, device, is_share: false, admin_access: false }
    }

    /// The device.
    pub(super) const fn device_name(self) -> &'a str {
        self.device
    }

    /// Whether the counters of the card would not allow both uses.
    ///
    /// Admin access draws on no counter, and the shares of one device draw together, once. Two partitions that draw on
    /// different counters would be allowed too; none are published yet, so any two devices of a card conflict, also one
    /// that only another version of the plugin knows.
    pub(super) fn conflicts_with(self, other: Use<'_>) -> bool {
        let shares_of_one_device = self.is_share && other.is_share && self.device == other.device;
        self.card == other.card && !self.admin_access && !other.admin_access && !shares_of_one_device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_counters() {
        let card: PciBusId = "0000:3b:00.0".parse().unwrap();
        let other: PciBusId = "0000:5e:00.0".parse().unwrap();
        let whole = Use::of_whole_card(card, "gpu-3b-00");
        let share = Use { card, device: "gpu-3b-00-ts", is_share: true, admin_access: false };
        let other_share = Use { device: "gpu-3b-00-mps", ..share };
        let admin = Use { admin_access: true, ..whole };

        assert!(whole.conflicts_with(whole));
        assert!(whole.conflicts_with(share) && share.conflicts_with(whole));
        assert!(share.conflicts_with(other_share));
        assert!(!share.conflicts_with(share));
        assert!(!whole.conflicts_with(Use::of_whole_card(other, "gpu-5e-00")));
        for any in [whole, share, admin] {
            assert!(!admin.conflicts_with(any) && !any.conflicts_with(admin));
        }
    }
}
