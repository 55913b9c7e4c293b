//! Which partitions can exist side by side: compares what the published counters admit with what the driver of the
//! emulated machine makes, for one set of partitions after the other.
// Clippy sees tests only in functions with #[test], not in what they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod card;
mod counted;

use std::{collections::BTreeSet, env};

use card::EmulatedCard;
use counted::{Counted, Partition};
use tessera_harness::{strangers::machine, workspace};

/// Environment variable: number of attempts to make a partition on each machine; 0 tries all sets, which takes minutes.
const ATTEMPTS_VARIABLE: &str = "TESSERA_MIG_LAYOUT_ATTEMPTS";
/// Covers a part of the sets of each card: those that begin with its first partitions.
const ATTEMPTS: u32 = 300;

/// The first card of every machine that has MIG.
fn cards() -> Vec<EmulatedCard> {
    let programs = workspace::build_programs().unwrap();
    let names = machine::names(&programs).unwrap();
    let cards: Vec<EmulatedCard> =
        names.iter().filter_map(|hardware| EmulatedCard::with_mig_on(&programs, hardware)).collect();
    assert!(cards.len() >= 8, "only {} machines have MIG", cards.len());
    cards
}

/// NVIDIA's MIG User Guide lists the 19 maximal layouts of an A100. The other numbers were computed from placements
/// alone by a separate program.
#[test]
fn counters_admit_as_many_layouts_as_there_are() {
    let mut seen = BTreeSet::new();
    for card in cards() {
        let counted = Counted::of(&card.pool());
        let double = |partition: &Partition| partition.compute_slices == 1 && partition.memory_slices == 2;
        let plain: Vec<&Partition> =
            counted.partitions.iter().filter(|partition| !partition.profile.contains(['+', '-'])).collect();
        let without_double: Vec<&Partition> = plain.iter().copied().filter(|one| !double(one)).collect();
        let (of_all, expected) = match counted.memory_slices {
            8 => (counted.layouts(&plain), (723, 78)),
            4 | 12 => (counted.layouts(&plain), (26, 5)),
            slices => panic!("{}: {slices} memory slices", card.hardware()),
        };
        assert_eq!(of_all, expected, "{}", card.hardware());
        if counted.memory_slices == 8 {
            assert_eq!(counted.layouts(&without_double), (298, 19), "{}", card.hardware());
        }
        seen.insert(counted.memory_slices);
    }
    assert_eq!(seen, BTreeSet::from([4, 8, 12]));
}

/// The sets of partitions that counters admit are made, and every partition is tried on top of each: the driver makes
/// it if and only if the counters suffice.
#[test]
fn counters_admit_what_the_driver_makes_and_nothing_else() {
    let most = match env::var(ATTEMPTS_VARIABLE).map(|text| text.parse().expect("a number of attempts")) {
        Ok(0) => u32::MAX,
        Ok(attempts) => attempts,
        Err(_) => ATTEMPTS,
    };
    for (position, card) in cards().iter().enumerate() {
        let mut counted = Counted::of(&card.pool());
        // Machines whose cards have the same partitions each begin at a different one.
        let first = position * 7 % counted.partitions.len();
        counted.partitions.rotate_left(first);
        let mut walk = Walk { card, counted: &counted, most, attempts: 0, refused: 0, sets: 0 };
        walk.from(0, &mut counted.all());
        assert_eq!(card.instances(), 0, "{}: something is left", card.hardware());
        let Walk { attempts, refused, sets, .. } = walk;
        let extent = if attempts < most { "all" } else { "not all" };
        println!("{}: {sets} sets ({extent}), {attempts} attempts, {refused} refused", card.hardware());
        assert!(sets >= 10 && refused > 10 && refused < attempts, "{}", card.hardware());
    }
}

struct Walk<'a> {
    card: &'a EmulatedCard,
    counted: &'a Counted,
    most: u32,
    attempts: u32,
    refused: u32,
    sets: u32,
}

impl Walk<'_> {
    /// Tries every partition on top of those that exist, and continues with those after `first`, so that each set
    /// comes once.
    fn from(&mut self, first: usize, left: &mut [i64]) {
        self.sets += 1;
        let mut is_maximal = true;
        for (position, partition) in self.counted.partitions.iter().enumerate() {
            if self.attempts == self.most {
                return;
            }
            let suffices = partition.fits(left);
            let made = self.card.make(partition);
            self.attempts += 1;
            let instance = match (suffices, made) {
                (true, Ok(instance)) => instance,
                (false, Err(error)) => {
                    assert!(error.is_insufficient_resources(), "{}: {error}", self.card.hardware());
                    self.refused += 1;
                    continue;
                }
                (true, Err(error)) => {
                    panic!("{}: counters admit {}: {error}", self.card.hardware(), partition.name)
                }
                (false, Ok(_)) => {
                    panic!(
                        "{}: counters refuse {}, the driver makes it",
                        self.card.hardware(),
                        partition.name
                    )
                }
            };
            is_maximal = false;
            if position >= first {
                partition.draw(left, -1);
                assert!(left.iter().all(|left| *left >= 0), "{left:?}");
                self.from(position + 1, left);
                partition.draw(left, 1);
            }
            self.card.destroy(instance);
        }
        if is_maximal {
            self.card.uses_all();
        }
    }
}
