//! Which partitions can exist side by side: what the published counters admit, and what the driver of the emulated machine
//! makes when asked for it, one set of partitions after the other until there is none left.
// Clippy sees tests only in functions with #[test], not in what they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "mig_layouts/card.rs"]
mod card;
#[path = "mig_layouts/counted.rs"]
mod counted;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    time::{Duration, Instant},
};

use card::EmulatedCard;
use counted::{Counted, Partition};
use tessera_tests::{strangers::machine, workspace};

/// Environment variable: seconds that the drivers of all machines may be asked for; by default a few.
const SECONDS_VARIABLE: &str = "TESSERA_MIG_LAYOUT_SECONDS";
const SECONDS: u64 = 8;

/// The first card of every machine that has MIG.
fn cards() -> Vec<EmulatedCard> {
    let programs = workspace::build_programs().unwrap();
    let names = machine::names(&programs).unwrap();
    let cards: Vec<EmulatedCard> =
        names.iter().filter_map(|hardware| EmulatedCard::with_mig_on(&programs, hardware)).collect();
    assert!(cards.len() >= 8, "only {} machines have MIG", cards.len());
    cards
}

/// NVIDIA's MIG User Guide lists the 19 maximal layouts of an A100. The other numbers were counted by a program of its own
/// from placements alone.
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

/// Every set of partitions that counters admit is made, and every partition tried besides: the driver makes it if and only
/// if the counters suffice. Cards take turns, so that in a short time some of each is seen.
#[test]
fn counters_admit_what_the_driver_makes_and_nothing_else() {
    let seconds =
        env::var(SECONDS_VARIABLE).map_or(SECONDS, |text| text.parse().expect("a number of seconds"));
    let cards = cards();
    let (begin, count) = (Instant::now(), cards.len() as u32);
    let mut sets = BTreeMap::new();
    for (position, card) in (1..).zip(&cards) {
        let until = begin + Duration::from_secs(seconds) * position / count;
        let counted = Counted::of(&card.pool());
        let mut walk = Walk { card, counted: &counted, until, sets: 0, tried: 0, ended: true };
        walk.from(0, &mut counted.all());
        assert_eq!(card.instances(), 0, "{}: something is left", card.hardware());
        assert!(walk.sets > 10, "{}: only {} sets in {seconds} s", card.hardware(), walk.sets);
        sets.insert(card.hardware().to_owned(), (walk.sets, walk.tried, walk.ended));
    }
    println!("sets seen, attempts, whether that were all: {sets:?}; {SECONDS_VARIABLE}=600 sees all");
}

struct Walk<'a> {
    card: &'a EmulatedCard,
    counted: &'a Counted,
    until: Instant,
    sets: u32,
    tried: u32,
    ended: bool,
}

impl Walk<'_> {
    /// Tries every partition on top of those that exist, and goes on from those behind `first`: so each set comes once.
    fn from(&mut self, first: usize, left: &mut [i64]) {
        self.sets += 1;
        let mut is_maximal = true;
        for (position, partition) in self.counted.partitions.iter().enumerate() {
            if Instant::now() > self.until {
                self.ended = false;
                return;
            }
            let suffices = partition.fits(left);
            let made = self.card.make(partition);
            self.tried += 1;
            let instance = match (suffices, made) {
                (true, Ok(instance)) => instance,
                (false, Err(_)) => continue,
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
