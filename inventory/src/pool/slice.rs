use k8s_openapi::api::resource::v1::{CounterSet, Device};
use tessera_api::limits;

/// One ResourceSlice of a pool, without what is the same in all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// End of the slice's name. kube-scheduler takes the slices of a pool by name, so this is the order of trying;
    /// a DNS label.
    pub name_suffix: String,
    /// What is in it. Kubernetes allows either devices or counter sets in one slice.
    pub contents: Contents,
}

/// What one slice holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Contents {
    /// Devices, in the order in which kube-scheduler shall try them.
    Devices(Vec<Device>),
    /// Counter sets that devices of any slice of the pool draw on.
    SharedCounters(Vec<CounterSet>),
}

/// The tiers of a pool: a request that names no type gets the smallest thing that satisfies it, and takes an open share
/// of a card only when nothing else is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Counter sets.
    Counters,
    /// MIG partitions, one slice for each card.
    Partitions,
    /// Whole cards.
    Cards,
    /// MPS and time-slice devices.
    Shared,
}

impl Tier {
    /// The name suffix of this tier's slice at `position`. Suffixes sort by tier, then position (up to 9999 slices).
    #[must_use]
    pub fn name_suffix(self, position: usize) -> String {
        let prefix = match self {
            Self::Counters => "0-counters",
            Self::Partitions => "1-partitions",
            Self::Cards => "2-cards",
            Self::Shared => "3-shared",
        };
        format!("{prefix}-{position:04}")
    }
}

impl Slice {
    /// As few slices as the API allows.
    pub(super) fn of_counter_sets(sets: Vec<CounterSet>) -> impl Iterator<Item = Self> {
        chunks(sets, limits::COUNTER_SETS_PER_SLICE).enumerate().map(|(position, sets)| Self {
            name_suffix: Tier::Counters.name_suffix(position),
            contents: Contents::SharedCounters(sets),
        })
    }

    /// The partitions of the card that is `rank`-th in the order of trying: one slice, as long as the API allows.
    pub(super) fn of_partitions(rank: usize, devices: Vec<Device>) -> impl Iterator<Item = Self> {
        // Behind those of all cards: 9999 sorts last.
        let name = Tier::Partitions.name_suffix(rank.min(9999));
        chunks(devices, limits::ADVANCED_DEVICES_PER_SLICE).enumerate().map(move |(position, devices)| Self {
            name_suffix: if position == 0 { name.clone() } else { format!("{name}-{position:04}") },
            contents: Contents::Devices(devices),
        })
    }

    /// As few slices as the API allows, devices in the given order.
    pub(super) fn of_devices(tier: Tier, devices: Vec<Device>) -> impl Iterator<Item = Self> {
        // Every device of a card draws on its counters, which halves what a slice may hold.
        chunks(devices, limits::ADVANCED_DEVICES_PER_SLICE).enumerate().map(move |(position, devices)| Self {
            name_suffix: tier.name_suffix(position),
            contents: Contents::Devices(devices),
        })
    }
}

fn chunks<T>(items: Vec<T>, size: usize) -> impl Iterator<Item = Vec<T>> {
    let mut items = items.into_iter();
    std::iter::from_fn(move || {
        let chunk: Vec<T> = items.by_ref().take(size).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_sort_by_name() {
        let tiers = [Tier::Counters, Tier::Partitions, Tier::Cards, Tier::Shared];
        let names: Vec<String> = tiers
            .iter()
            .flat_map(|tier| [0, 9, 10, 9999].map(|position| tier.name_suffix(position)))
            .collect();
        assert!(names.is_sorted());
        assert!(names.iter().all(|name| limits::is_dns_label(name)));
    }

    #[test]
    fn chunks_are_full_but_for_the_last() {
        let sizes =
            |count: usize| chunks((0..count).collect(), 8).map(|chunk| chunk.len()).collect::<Vec<_>>();
        assert_eq!(sizes(0), Vec::<usize>::new());
        assert_eq!(sizes(8), [8]);
        assert_eq!(sizes(17), [8, 8, 1]);
    }
}
