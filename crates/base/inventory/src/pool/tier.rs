//! Names of slices, by tier.

/// The tiers of a pool: a request without a type gets a whole card, a partition only if no suitable whole card is
/// free, and a share of a card only when nothing else is left. kube-scheduler tries devices in this order until one fits, so
/// pods asking for whole cards, the most common ones, also wait least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Counter sets.
    Counters,
    /// Whole cards.
    Cards,
    /// MIG partitions, one slice for each card.
    Partitions,
    /// MPS and time-slice devices.
    Shared,
}

impl Tier {
    /// The name suffix of this tier's slice at `position`. Suffixes sort by tier, then position (up to 9999 slices).
    #[must_use]
    pub fn name_suffix(self, position: usize) -> String {
        let prefix = match self {
            Self::Counters => "0-counters",
            Self::Cards => "1-cards",
            Self::Partitions => "2-partitions",
            Self::Shared => "3-shared",
        };
        format!("{prefix}-{position:04}")
    }
}

/// The name suffix of the slice at `position` of the partitions of the `rank`-th card in the order of trying.
pub(super) fn partitions_name_suffix(rank: usize, position: usize) -> String {
    // After those of all cards: 9999 sorts last.
    let name = Tier::Partitions.name_suffix(rank.min(9999));
    if position == 0 { name } else { format!("{name}-{position:04}") }
}

#[cfg(test)]
mod tests {
    use tessera_api::limits;

    use super::*;

    #[test]
    fn tiers_sort_by_name() {
        let tiers = [Tier::Counters, Tier::Cards, Tier::Partitions, Tier::Shared];
        let names: Vec<String> = tiers
            .iter()
            .flat_map(|tier| [0, 9, 10, 9999].map(|position| tier.name_suffix(position)))
            .collect();
        assert!(names.is_sorted());
        assert!(names.iter().all(|name| limits::is_dns_label(name)));
    }

    #[test]
    fn the_partitions_of_one_card_stay_together() {
        let names: Vec<String> =
            [(0, 0), (0, 1), (0, 2), (1, 0), (9998, 3), (usize::MAX, 0), (usize::MAX, 1)]
                .map(|(rank, position)| partitions_name_suffix(rank, position))
                .into();
        assert_eq!(names[1], "2-partitions-0000-0001");
        assert!(names.is_sorted());
        assert!(names.iter().all(|name| limits::is_dns_label(name)));
    }
}
