//! Claims whose programs hold more memory than they were promised, where nothing limits them: a level for each claim, from looks at
//! their use. Pure.
//!
//! ```text
//!           (more than its part)          (most of its device, and a neighbour's part is no longer free)
//! within ─────────────────────────> above ─────────────────────────> endangers
//! ```
//!
//! A level holds from the second look in a row on, so that memory held for a moment has no consequence.

use std::collections::{BTreeMap, BTreeSet};

/// A claim above its part is within it again once it holds a twentieth less.
const MARGIN: u64 = 20;

/// A claim's part of a device, and its use. Bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// UID of the claim.
    pub claim: String,
    /// The device.
    pub device: String,
    /// Memory promised to the claim.
    pub promised: u64,
    /// Memory held by its programs; `None` if unknown.
    pub used: Option<u64>,
    /// Memory of the device that is free; `None` if unknown.
    pub free: Option<u64>,
}

/// How a claim keeps to its part, or the worst of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Within its part, or as far as is known.
    #[default]
    Within,
    /// Above its part.
    Above,
    /// Further above its part than any other claim of the device, while a neighbour could not get what it was promised.
    Endangers,
}

#[derive(Clone, Copy, Debug)]
struct State {
    level: Level,
    /// The level by the last look alone.
    seen: Level,
    is_told: bool,
}

/// The levels of all claims.
#[derive(Debug, Default)]
pub struct Overuse {
    claims: BTreeMap<String, State>,
    /// Claims that endanger others, each with a neighbour that was named.
    named: BTreeSet<(String, String)>,
}

impl Part {
    /// Memory held beyond the promise.
    pub fn excess(&self) -> u64 {
        self.used.unwrap_or_default().saturating_sub(self.promised)
    }

    /// Memory promised and not held yet; `None` if the use is unknown.
    pub fn unused(&self) -> Option<u64> {
        Some(self.promised.saturating_sub(self.used?))
    }

    /// Whether less is free than the part still lacks.
    pub fn is_endangered(&self) -> bool {
        self.unused().zip(self.free).is_some_and(|(unused, free)| free < unused)
    }
}

impl Overuse {
    /// Takes a look at all parts, and returns the claims with another level than before: all claims at the first look at them, but those
    /// above their part at the second, whatever they are then. After a start of the plugin they may have been told before, and would be
    /// within their part for one look. Claims not looked at are forgotten.
    pub fn look(&mut self, parts: &[Part]) -> Vec<(String, Level)> {
        let mut seen = BTreeMap::<&str, Level>::new();
        for part in parts {
            let before = self.claims.get(&part.claim).map_or(Level::Within, |state| state.seen);
            let level = seen.entry(&part.claim).or_default();
            *level = (*level).max(level_of(part, parts, before));
        }
        let mut changed = Vec::new();
        let mut claims = BTreeMap::new();
        for (claim, seen) in seen {
            let known = self.claims.get(claim);
            let new = State { level: Level::Within, seen: Level::Within, is_told: false };
            let before = known.copied().unwrap_or(new);
            let (low, high) = (seen.min(before.seen), seen.max(before.seen));
            let level = before.level.clamp(low, high);
            let is_due = known.is_some() || seen == Level::Within;
            if level != before.level || (is_due && !before.is_told) {
                changed.push((claim.to_owned(), level));
            }
            claims.insert(claim.to_owned(), State { level, seen, is_told: is_due });
        }
        self.claims = claims;
        changed
    }

    /// The endangered neighbours at the same parts, each once while another claim endangers it: those that come later, too.
    pub fn endangered<'p>(&mut self, parts: &'p [Part]) -> Vec<&'p Part> {
        let (claims, named) = (&self.claims, &mut self.named);
        let endangers = |claim: &str| claims.get(claim).is_some_and(|state| state.level == Level::Endangers);
        named.retain(|(claim, neighbour)| endangers(claim) && claims.contains_key(neighbour));
        let mut found = Vec::new();
        for part in parts.iter().filter(|part| endangers(&part.claim)) {
            let of_others =
                parts.iter().filter(|other| other.device == part.device && other.claim != part.claim);
            for other in of_others.filter(|other| other.is_endangered()) {
                if named.insert((part.claim.clone(), other.claim.clone())) {
                    found.push(other);
                }
            }
        }
        found
    }
}

/// The level by this look alone; `before` by the one before.
fn level_of(part: &Part, parts: &[Part], before: Level) -> Level {
    let Some(used) = part.used else { return Level::Within };
    if part.excess() == 0 {
        let stays = before > Level::Within && used > part.promised - part.promised / MARGIN;
        return if stays { Level::Above } else { Level::Within };
    }
    let mut neighbours =
        parts.iter().filter(|other| other.device == part.device && other.claim != part.claim);
    let rank = |part: &Part| (part.excess(), part.claim.clone());
    let is_most = neighbours.clone().all(|other| rank(other) < rank(part));
    if is_most && neighbours.any(Part::is_endangered) { Level::Endangers } else { Level::Above }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    /// A card of 80 GiB in four parts of 20 GiB, by what each claim holds.
    fn card(used: &[Option<u64>]) -> Vec<Part> {
        let free = 80_u64.saturating_sub(used.iter().flatten().sum());
        let part = |(number, used): (usize, &Option<u64>)| Part {
            claim: format!("{number}"),
            device: "gpu-01-00-ts".to_owned(),
            promised: 20 * GIB,
            used: used.map(|used| used * GIB),
            free: Some(free * GIB),
        };
        used.iter().enumerate().map(part).collect()
    }

    /// The levels of the first claims after these looks at what each holds.
    fn after(looks: &[&[u64]]) -> Vec<Level> {
        let mut overuse = Overuse::default();
        for look in looks {
            overuse.look(&card(&look.iter().copied().map(Some).collect::<Vec<_>>()));
        }
        overuse.claims.values().map(|state| state.level).collect()
    }

    use Level::{Above, Endangers, Within};

    #[test]
    fn a_claim_above_its_part_endangers_neighbours_once_their_parts_are_not_free() {
        assert_eq!(after(&[&[20, 1], &[20, 1]]), [Within, Within]);
        assert_eq!(after(&[&[30, 1], &[30, 1]]), [Above, Within], "49 GiB are free");
        // 18 GiB are free, and the neighbour may ask for 19.
        assert_eq!(after(&[&[61, 1], &[61, 1]]), [Endangers, Within]);
        assert_eq!(after(&[&[59, 1, 5], &[59, 1, 5]]), [Endangers, Within, Within]);
        assert_eq!(after(&[&[60, 20], &[60, 20]]), [Above, Within], "the neighbour has its part");
        assert_eq!(after(&[&[70], &[70]]), [Above], "nobody else is there");
        // The most overused one alone.
        assert_eq!(after(&[&[35, 40, 1], &[35, 40, 1]]), [Above, Endangers, Within]);
    }

    #[test]
    fn one_look_changes_nothing() {
        assert_eq!(after(&[&[1, 1], &[61, 1]]), [Within, Within]);
        assert_eq!(after(&[&[61, 1], &[61, 1], &[1, 1]]), [Endangers, Within]);
        assert_eq!(after(&[&[61, 1], &[61, 1], &[1, 1], &[61, 1]]), [Endangers, Within]);
        assert_eq!(after(&[&[61, 1], &[61, 1], &[30, 1], &[30, 1]]), [Above, Within]);
        assert_eq!(after(&[&[61, 1], &[30, 1], &[61, 1]]), [Above, Within]);
    }

    #[test]
    fn a_claim_around_its_part_is_told_once() {
        let mut overuse = Overuse::default();
        let mut told = Vec::new();
        for used in [21, 21, 20, 20, 21, 20, 20, 19, 19, 20] {
            told.extend(overuse.look(&card(&[Some(used), Some(20)])));
        }
        let level = |claim: &str, level| (claim.to_owned(), level);
        assert_eq!(told, [level("1", Within), level("0", Above), level("0", Within)]);
    }

    #[test]
    fn after_a_start_a_claim_above_its_part_is_told_at_the_second_look() {
        for (used, second) in [([61, 61], Endangers), ([30, 61], Above), ([30, 1], Within)] {
            let mut overuse = Overuse::default();
            let mut look = |used| overuse.look(&card(&[Some(used), Some(1)]));
            let told = |claim: &str, level| (claim.to_owned(), level);
            assert_eq!(look(used[0]), [told("1", Within)], "{used:?}");
            assert_eq!(look(used[1]), [told("0", second)], "{used:?}");
        }
    }

    #[test]
    fn a_neighbour_is_named_once_also_one_that_comes_later() {
        let mut overuse = Overuse::default();
        let mut named = |used: &[u64]| {
            let parts = card(&used.iter().copied().map(Some).collect::<Vec<_>>());
            overuse.look(&parts);
            let named = overuse.endangered(&parts);
            named.into_iter().map(|part| part.claim.clone()).collect::<Vec<_>>()
        };
        assert!(named(&[61, 1]).is_empty(), "one look");
        assert_eq!(named(&[61, 1]), ["1"]);
        assert!(named(&[61, 1]).is_empty(), "named");
        assert_eq!(named(&[61, 1, 2]), ["2"]);
        assert!(named(&[61, 1]).is_empty());
        assert_eq!(named(&[61, 1, 2]), ["2"], "another claim");
        for _ in 0..2 {
            assert!(named(&[1, 1, 2]).is_empty());
        }
        assert!(named(&[61, 1, 2]).is_empty());
        assert_eq!(named(&[61, 1, 2]), ["1", "2"], "endangered again");
    }

    #[test]
    fn unknown_use_accuses_nobody_and_is_no_danger() {
        let mut overuse = Overuse::default();
        let (known, unknown) = (card(&[Some(61), Some(1)]), card(&[None, None]));
        overuse.look(&known);
        overuse.look(&known);
        overuse.look(&unknown);
        assert_eq!(overuse.look(&unknown), [("0".to_owned(), Within)]);
        let mut without = known;
        without.iter_mut().for_each(|part| part.free = None);
        overuse.look(&without);
        assert_eq!(overuse.look(&without), [("0".to_owned(), Above)]);
        assert_eq!(overuse.look(&[]), []);
        assert!(overuse.claims.is_empty());
    }

    proptest! {
        /// By definition, with two looks for a change; and of one device one claim at most is to go.
        #[test]
        fn a_level_holds_exactly_while_two_looks_in_a_row_say_no_other(
            history in prop::collection::vec(prop::collection::vec(prop::option::of(0u64..40), 3), 1..30),
        ) {
            let mut overuse = Overuse::default();
            let mut told = BTreeMap::<String, Level>::new();
            let (mut last, mut levels) = (vec![Within; 3], vec![Within; 3]);
            for used in history {
                let parts = card(&used);
                told.extend(overuse.look(&parts));
                for number in 0..3 {
                    let others: Vec<&Part> =
                        parts.iter().enumerate().filter(|(other, _)| *other != number).map(|(_, part)| part).collect();
                    let part = &parts[number];
                    let over = used[number].unwrap_or_default();
                    let lacks = |other: &&Part| other.used.is_some_and(|used| used + other.free.unwrap() < other.promised);
                    let is_most = others.iter().all(|other| {
                        let excess = other.used.unwrap_or_default().saturating_sub(20 * GIB);
                        (excess, &other.claim) < (over.saturating_sub(20) * GIB, &part.claim)
                    });
                    let seen = match over {
                        21.. if is_most && others.iter().any(lacks) => Endangers,
                        21.. => Above,
                        20 if last[number] > Within => Above,
                        _ => Within,
                    };
                    // Two looks above the level raise it to the lower of both, two below lower it to the higher.
                    if seen.min(last[number]) > levels[number] {
                        levels[number] = seen.min(last[number]);
                    } else if seen.max(last[number]) < levels[number] {
                        levels[number] = seen.max(last[number]);
                    }
                    last[number] = seen;
                    prop_assert_eq!(told.get(&part.claim).copied().unwrap_or_default(), levels[number]);
                }
                prop_assert!(levels.iter().filter(|level| **level == Endangers).count() <= 1);
            }
        }
    }
}
