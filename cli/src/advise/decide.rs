//! Finds the offers sufficient for a claim's usage.

use serde::Serialize;

use super::offers::{Kind, Offer};
use crate::output;

/// Headroom above the peak: a fifth.
pub const MARGIN: f64 = 1.2;

/// A peak of so many times the mean is a burst.
const BURST: f64 = 4.0;

/// Peaks below this share of a card are no bursts: the least partition of most cards has as much.
const LEAST_BURST: f64 = 0.1;

/// A choice above this part of the claim's worth is not worth a change.
const SMALLER: f64 = 0.9;

/// A claim's usage of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Use {
    /// Length of the observation, in seconds.
    pub seconds: u64,
    /// The most memory, in MiB.
    pub memory_peak_mib: Option<u64>,
    /// The mean share of the card's multiprocessors, 0 to 1.
    pub sm_mean: Option<f64>,
    /// The highest share.
    pub sm_peak: Option<f64>,
}

/// A device sufficient for the usage.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    /// Kind of the device.
    #[serde(flatten)]
    pub kind: Kind,
    /// Memory, in MiB: of a share, the amount to request; of a time-slice, the card's memory divided by its time-slices.
    pub memory_mib: u64,
    /// Of a share by MPS: percent of the multiprocessors to ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<u32>,
    /// Its part of a card, 0 to 1.
    #[serde(serialize_with = "output::rounded")]
    pub worth: f64,
    /// The DeviceClass to ask for; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Share of a card's multiprocessors to which higher bursts are limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bursts_held_to: Option<f64>,
}

/// The advice.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "verdict")]
pub enum Advice {
    /// A smaller device would have sufficed.
    Change {
        /// The smaller device.
        to: Choice,
    },
    /// No smaller device on offer would suffice.
    Fits,
    /// A time-slice held more memory than its part.
    #[serde(rename_all = "camelCase")]
    AbovePart {
        /// Memory to ask for, in MiB; absent where that is more than the card has.
        #[serde(skip_serializing_if = "Option::is_none")]
        ask_memory_mib: Option<u64>,
    },
    /// The observation was too short.
    NotEnoughSeen,
    /// No usage metrics exist for the claim.
    NotMeasured,
    /// The device is one of several of a request, working together: partitions have no NVLink.
    Together {
        /// How many.
        devices: usize,
    },
    /// Nothing is published of its model of card.
    NothingOffered,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The advice.
    pub advice: Advice,
    /// Whether its peak is much above its mean.
    pub is_bursty: bool,
    /// Least worth of a share or time-slice, in cards, where none is offered and one would be smaller than the advised device.
    pub share_worth: Option<f64>,
}

impl Use {
    /// The largest of both.
    pub fn and(self, other: Use) -> Use {
        let most = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        Use {
            seconds: self.seconds.max(other.seconds),
            memory_peak_mib: self.memory_peak_mib.max(other.memory_peak_mib),
            sm_mean: most(self.sm_mean, other.sm_mean),
            sm_peak: most(self.sm_peak, other.sm_peak),
        }
    }
}

/// Requirements including the margin.
#[derive(Debug, Clone, Copy)]
struct Need {
    memory_mib: u64,
    peak: f64,
    mean: f64,
    is_bursty: bool,
}

/// A peak of memory with the margin.
pub fn with_margin(memory_mib: u64) -> u64 {
    (memory_mib as f64 * MARGIN).ceil() as u64
}

/// Advice for a claim with `worth` of a card. `offers` are the offers of its model.
pub fn decide(used: Use, worth: f64, offers: &[Offer], min_seconds: u64) -> Decision {
    let plain = |advice| Decision { advice, is_bursty: false, share_worth: None };
    if used.seconds < min_seconds {
        return plain(Advice::NotEnoughSeen);
    }
    let (Some(memory), Some(mean), Some(peak)) = (used.memory_peak_mib, used.sm_mean, used.sm_peak) else {
        return plain(Advice::NotMeasured);
    };
    if offers.is_empty() {
        return plain(Advice::NothingOffered);
    }
    let is_bursty = peak >= LEAST_BURST && peak >= BURST * mean;
    let need = Need {
        memory_mib: with_margin(memory),
        peak: (peak * MARGIN).min(1.0),
        mean: (mean * MARGIN).min(1.0),
        is_bursty,
    };
    let held = offers.iter().filter_map(|offer| holds(offer, need));
    let smaller: Vec<Choice> = held.filter(|choice| choice.worth <= worth * SMALLER).collect();
    let best = best(smaller, is_bursty);
    let of_card = offers.iter().filter(|offer| offer.worth >= 1.0).map(|offer| offer.memory_mib).max();
    let share_worth = of_card.filter(|_| is_bursty && !offers.iter().any(is_share)).and_then(|all| {
        let least = (need.memory_mib as f64 / all.max(1) as f64).max(need.mean);
        let advised = best.as_ref().map_or(worth, |best| best.worth);
        (least <= advised * SMALLER).then_some(least)
    });
    let advice = best.map_or(Advice::Fits, |to| Advice::Change { to });
    Decision { advice, is_bursty, share_worth }
}

fn is_share(offer: &Offer) -> bool {
    matches!(offer.kind, Kind::MpsShare { .. } | Kind::TimeSlice { .. })
}

/// The smallest choice. Steady use gets a partition if one is smaller than the current device, since faults of other users do not
/// end work there; bursty use gets a share if no larger than the partition.
fn best(choices: Vec<Choice>, is_bursty: bool) -> Option<Choice> {
    let rank = |choice: &Choice| match choice.kind {
        Kind::TimeSlice { .. } => 0,
        Kind::MpsShare { .. } => 1,
        Kind::Partition { .. } => 2,
        Kind::Card => 3,
    };
    let smallest = |choices: Vec<Choice>| {
        choices
            .into_iter()
            .min_by(|one, other| one.worth.total_cmp(&other.worth).then_with(|| rank(one).cmp(&rank(other))))
    };
    if is_bursty {
        return smallest(choices);
    }
    let (hard, shared): (Vec<Choice>, Vec<Choice>) =
        choices.into_iter().partition(|choice| matches!(choice.kind, Kind::Partition { .. } | Kind::Card));
    smallest(hard).or_else(|| smallest(shared))
}

/// The offer as a device sufficient for the need; `None` if too small.
fn holds(offer: &Offer, need: Need) -> Option<Choice> {
    let choice = |memory_mib, compute, worth| Choice {
        kind: offer.kind.clone(),
        memory_mib,
        compute,
        worth,
        class: offer.class.clone(),
        bursts_held_to: None,
    };
    match &offer.kind {
        Kind::Card | Kind::Partition { .. } => {
            let is_enough = offer.memory_mib >= need.memory_mib && offer.multiprocessors? >= need.peak;
            is_enough.then(|| choice(offer.memory_mib, None, offer.worth))
        }
        Kind::MpsShare { .. } => {
            let all = offer.multiprocessors.filter(|all| *all > 0.0)?;
            let step = offer.least_memory_mib.max(1);
            let memory = need.memory_mib.max(1).checked_next_multiple_of(step)?;
            let of_memory = memory as f64 / offer.memory_mib.max(1) as f64;
            // A burst may take longer; multiprocessors beyond the share of memory cost nothing more.
            let wanted = if need.is_bursty { (need.mean / all).max(of_memory) } else { need.peak / all };
            let percent = ((wanted * 100.0).ceil() as u32).max(offer.least_compute);
            if memory > offer.memory_mib || percent > 100 {
                return None;
            }
            let of_compute = f64::from(percent) / 100.0;
            let of_clients = 1.0 / f64::from(offer.clients.max(1));
            let held_to = all * of_compute;
            let worth = offer.worth * of_memory.max(of_compute).max(of_clients);
            Some(Choice {
                bursts_held_to: (held_to * MARGIN < need.peak).then_some(held_to),
                ..choice(memory, Some(percent), worth)
            })
        }
        Kind::TimeSlice { slots } => {
            let worth = 1.0 / f64::from(*slots);
            let memory = offer.memory_mib / u64::from(*slots);
            let is_enough = need.is_bursty && memory >= need.memory_mib && worth >= need.mean;
            is_enough.then(|| choice(memory, None, worth))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(kind: Kind, memory_mib: u64, multiprocessors: f64, worth: f64) -> Offer {
        Offer {
            kind,
            memory_mib,
            multiprocessors: Some(multiprocessors),
            worth,
            least_memory_mib: 128,
            least_compute: 1,
            clients: 48,
            class: None,
        }
    }

    fn partition(profile: &str, memory_mib: u64, of_132: u32, slices: u32) -> Offer {
        let kind = Kind::Partition { profile: profile.to_owned() };
        offer(kind, memory_mib, f64::from(of_132) / 132.0, f64::from(slices) / 8.0)
    }

    fn hard() -> Vec<Offer> {
        vec![
            offer(Kind::Card, 81_559, 1.0, 1.0),
            partition("1g.10gb", 9_984, 16, 1),
            partition("1g.20gb", 20_096, 26, 2),
            partition("2g.20gb", 20_096, 32, 2),
            partition("3g.40gb", 40_448, 60, 4),
            partition("4g.40gb", 40_448, 64, 4),
            partition("7g.80gb", 81_152, 132, 8),
        ]
    }

    fn shares() -> Vec<Offer> {
        vec![
            offer(Kind::MpsShare { profile: None }, 81_000, 1.0, 1.0),
            offer(Kind::TimeSlice { slots: 4 }, 81_559, 1.0, 1.0),
        ]
    }

    fn used(memory: u64, mean: f64, peak: f64) -> Use {
        Use { seconds: 7200, memory_peak_mib: Some(memory), sm_mean: Some(mean), sm_peak: Some(peak) }
    }

    fn advised(used: Use, worth: f64, offers: &[Offer]) -> String {
        match decide(used, worth, offers, 3600).advice {
            Advice::Change { to } => match to.kind {
                Kind::Partition { profile } => profile,
                Kind::MpsShare { .. } => format!("mps {} {}", to.memory_mib, to.compute.unwrap()),
                Kind::TimeSlice { slots } => format!("1/{slots}"),
                Kind::Card => "card".to_owned(),
            },
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn the_smallest_partition_that_holds_both_peaks_with_the_margin() {
        for (memory, mean, peak, worth, wanted) in [
            (8_000, 0.05, 0.10, 1.0, "1g.10gb"),
            // 8,400 MiB and a fifth are more than 9,984; 11 % and a fifth more than 16 of 132.
            (8_400, 0.05, 0.10, 1.0, "1g.20gb"),
            (1_000, 0.05, 0.11, 1.0, "1g.20gb"),
            (1_000, 0.10, 0.18, 1.0, "2g.20gb"),
            (30_000, 0.30, 0.35, 1.0, "3g.40gb"),
            (30_000, 0.30, 0.35, 0.5, "Fits"),
            (70_000, 0.30, 0.35, 1.0, "Fits"),
            (1_000, 0.60, 0.95, 1.0, "Fits"),
        ] {
            assert_eq!(advised(used(memory, mean, peak), worth, &hard()), wanted, "{memory} {peak} {worth}");
        }
    }

    #[test]
    fn bursts_get_shares_and_steady_work_a_partition() {
        let all = [hard(), shares()].concat();
        // A partition for the peak would be half a card, and a quarter has the memory and more than the mean.
        assert_eq!(advised(used(6_000, 0.05, 0.40), 1.0, &all), "mps 7296 10");
        let sliced = [hard(), shares().split_off(1)].concat();
        assert_eq!(advised(used(6_000, 0.05, 0.40), 1.0, &sliced), "1/4");
        // No time-slice has the memory, or the time.
        assert_eq!(advised(used(18_000, 0.05, 0.40), 1.0, &sliced), "4g.40gb");
        assert_eq!(advised(used(6_000, 0.22, 0.90), 1.0, &sliced), "Fits");
        // As large as a partition for the same: steady.
        assert_eq!(advised(used(6_000, 0.09, 0.10), 1.0, &all), "1g.10gb");
        // No partition is smaller; a hardly smaller share is not worth its neighbours.
        assert_eq!(advised(used(8_000, 0.05, 0.08), 0.125, &all), "Fits");
        assert_eq!(advised(used(2_000, 0.02, 0.03), 0.125, &all), "mps 2432 4");
        let decision = decide(used(6_000, 0.05, 0.40), 1.0, &all, 3600);
        let Advice::Change { to } = decision.advice else { panic!("{decision:?}") };
        assert_eq!((decision.is_bursty, to.bursts_held_to), (true, Some(0.1)));
    }

    #[test]
    fn a_share_that_nobody_offers_is_named() {
        let decision = decide(used(6_000, 0.05, 0.40), 1.0, &hard(), 3600);
        let Advice::Change { to } = &decision.advice else { panic!("{decision:?}") };
        assert_eq!(to.worth, 0.5);
        assert!((decision.share_worth.unwrap() - 7_200.0 / 81_559.0).abs() < 1e-9, "{decision:?}");
        assert_eq!(decide(used(6_000, 0.30, 0.40), 1.0, &hard(), 3600).share_worth, None, "steady");
    }

    #[test]
    fn too_little_is_known() {
        let short = Use { seconds: 600, ..used(1, 0.0, 0.0) };
        assert_eq!(advised(short, 1.0, &hard()), "NotEnoughSeen");
        assert_eq!(advised(Use { sm_peak: None, ..used(1, 0.0, 0.0) }, 1.0, &hard()), "NotMeasured");
        assert_eq!(advised(used(1, 0.0, 0.0), 1.0, &[]), "NothingOffered");
        let mut unknown = hard();
        unknown.iter_mut().for_each(|offer| offer.multiprocessors = None);
        assert_eq!(advised(used(1, 0.0, 0.0), 1.0, &unknown), "Fits");
    }

    /// As no controller says them, but a file may.
    #[test]
    fn values_that_cannot_be_end_in_an_answer() {
        let all = [hard(), shares()].concat();
        for (memory, mean, peak) in
            [(u64::MAX, 0.1, 0.1), (1, f64::MAX, f64::MAX), (1, f64::NAN, f64::NAN), (0, -1.0, -1.0)]
        {
            let decision = decide(used(memory, mean, peak), 1.0, &all, 0);
            if let Advice::Change { to } = &decision.advice {
                assert!(to.worth > 0.0 && to.worth < 1.0, "{decision:?}");
            }
        }
    }

    #[test]
    fn of_several_claims_the_most_counts() {
        let one = used(5, 0.5, 0.6);
        let other = Use { seconds: 9000, sm_peak: Some(0.9), sm_mean: None, memory_peak_mib: None };
        let both = one.and(other);
        assert_eq!(both, Use { seconds: 9000, sm_peak: Some(0.9), ..one });
    }
}
