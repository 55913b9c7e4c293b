//! Static SM partitions of MPS: the guaranteed number of a card, derived from NVML's facts.

use crate::machine::Card;

/// Static SM partitions of a card: multiprocessors reserved in chunks by an MPS daemon started with `-S`.
///
/// Only a running daemon knows the number of chunks: a chunk lies within one cluster of the chip, and the working
/// parts of a cluster differ from card to card (NVIDIA's example has 10 chunks of 8 in 92 multiprocessors, others'
/// tests 15 in the 132 of an H100). The published number is therefore a lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticPartitions {
    multiprocessors: u32,
    chunk: u32,
}

/// The reason for a card without static SM partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoStaticPartitions {
    /// The driver's MPS does not support them yet, or its version is unknown.
    #[error("static SM partitions need a driver for CUDA 13.1 or later")]
    Driver,
    /// The card is older than Ampere, or its compute capability is unknown.
    #[error("static SM partitions need Ampere or later")]
    Card,
    /// The driver does not report the card's number of multiprocessors.
    #[error("the driver does not say how many multiprocessors it has")]
    Multiprocessors,
}

/// The first CUDA version whose MPS has static SM partitions, 1000 × major + 10 × minor.
const CUDA: u32 = 13_010;

/// The first compute capability with static SM partitions: Ampere.
const COMPUTE_MAJOR: u32 = 8;

impl StaticPartitions {
    /// Of a card with the driver's CUDA version, 1000 × major + 10 × minor (NVIDIA's MPS documentation, "Using Static SM
    /// Partitioning"; CUDA 13.1 release notes: chunks of 8 multiprocessors from Hopper on, of 4 before).
    ///
    /// # Errors
    /// [`NoStaticPartitions`], also if a needed fact is unknown.
    pub fn of(card: &Card, cuda_driver_version: Option<u32>) -> Result<Self, NoStaticPartitions> {
        if cuda_driver_version.is_none_or(|version| version < CUDA) {
            return Err(NoStaticPartitions::Driver);
        }
        let capability = card.compute_capability.filter(|version| version.major >= COMPUTE_MAJOR);
        let capability = capability.ok_or(NoStaticPartitions::Card)?;
        let per = cores_per_multiprocessor(capability.major, capability.minor);
        let multiprocessors = card.cores.zip(per).map(|(cores, per)| cores / per);
        let multiprocessors = multiprocessors.filter(|count| *count > 0);
        let chunk = if capability.major > COMPUTE_MAJOR { 8 } else { 4 };
        multiprocessors
            .map(|multiprocessors| Self { multiprocessors, chunk })
            .ok_or(NoStaticPartitions::Multiprocessors)
    }

    /// Lower bound on the number of chunks. A cluster of `n` multiprocessors (at least one chunk) has `n / chunk`
    /// chunks, rounded down, which is more than half of the exact quotient; so the sum over all clusters is too.
    #[must_use]
    pub const fn fewest_chunks(self) -> u32 {
        self.multiprocessors.div_ceil(2 * self.chunk)
    }

    /// The smallest percentage of the card that is at least one chunk for any possible number of chunks.
    #[must_use]
    pub const fn min_compute(self) -> u32 {
        100_u32.div_ceil(self.fewest_chunks())
    }

    /// Number of chunks of a share with this percentage on a card with `chunks`. Rounded down, so shares of
    /// together 100 percent never need more than exist.
    #[must_use]
    pub const fn chunks_of(compute: u8, chunks: u32) -> u32 {
        // 100 percent of u32::MAX chunks fits u64, and the result fits u32.
        let part = chunks as u64 * if compute > 100 { 100 } else { compute as u64 } / 100;
        part as u32
    }
}

/// Cores of a streaming multiprocessor, by compute capability (CUDA Programming Guide, Compute Capabilities); `None`
/// for a capability newer than this table.
const fn cores_per_multiprocessor(major: u32, minor: u32) -> Option<u32> {
    Some(match (major, minor) {
        (8, 0) => 64,
        (8, 6 | 7 | 9) | (9..=12, _) => 128,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::machine::ComputeCapability;

    fn card(major: u32, minor: u32, cores: Option<u32>) -> Card {
        let mut card = Card::new("0000:3b:00.0".parse().unwrap());
        card.compute_capability = Some(ComputeCapability { major, minor });
        card.cores = cores;
        card
    }

    #[test]
    fn known_cards() {
        let of = |major, minor, cores| {
            let partitions = StaticPartitions::of(&card(major, minor, Some(cores)), Some(13_010)).unwrap();
            (partitions.multiprocessors, partitions.fewest_chunks(), partitions.min_compute())
        };
        assert_eq!(of(9, 0, 16_896), (132, 9, 12), "H100");
        assert_eq!(of(8, 0, 6912), (108, 14, 8), "A100");
        assert_eq!(of(8, 9, 18_176), (142, 18, 6), "L40S");
        assert_eq!(of(8, 6, 256), (2, 1, 100), "less than a chunk is taken for one");
    }

    #[test]
    fn what_is_unknown_is_not_offered() {
        let of = |card: &Card, cuda| StaticPartitions::of(card, cuda).unwrap_err();
        let h100 = card(9, 0, Some(16_896));
        assert_eq!(of(&h100, None), NoStaticPartitions::Driver);
        assert_eq!(of(&h100, Some(13_000)), NoStaticPartitions::Driver);
        assert_eq!(of(&card(7, 5, Some(2560)), Some(13_010)), NoStaticPartitions::Card);
        let unknown = Card { compute_capability: None, ..h100 };
        assert_eq!(of(&unknown, Some(13_010)), NoStaticPartitions::Card);
        for card in [card(9, 0, None), card(9, 0, Some(0)), card(13, 0, Some(16_896))] {
            assert_eq!(of(&card, Some(13_010)), NoStaticPartitions::Multiprocessors);
        }
    }

    proptest! {
        /// Whatever the clusters of a chip are, provided that each has a chunk: every share that can be allocated has one,
        /// and all together are there.
        #[test]
        fn whatever_is_allocated_can_be_made(
            clusters in proptest::collection::vec(8u32..40, 1..20),
            asked in proptest::collection::vec(0u32..100, 1..50),
        ) {
            let multiprocessors: u32 = clusters.iter().sum();
            let partitions = StaticPartitions { multiprocessors, chunk: 8 };
            let chunks: u32 = clusters.iter().map(|cluster| cluster / 8).sum();
            prop_assert!(partitions.fewest_chunks() <= chunks);
            let min = partitions.min_compute();
            let (mut compute, mut used) = (0, 0);
            for share in asked.iter().map(|more| (min + more).min(100)) {
                if compute + share > 100 {
                    continue;
                }
                compute += share;
                let chunks = StaticPartitions::chunks_of(u8::try_from(share).unwrap(), chunks);
                prop_assert!(chunks > 0);
                used += chunks;
            }
            prop_assert!(used <= chunks);
        }
    }
}
