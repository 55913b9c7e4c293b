//! Claims whose pods do not use their devices: a state for each claim, from looks at their use. Pure.
//!
//! ```text
//!          (below the limit)             (for `after`)
//! in use ────────────────────> waiting ────────────────> idle
//!    ^                            │                        │
//!    └──(above, unknown, started, another limit, a gap)────┘
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

/// Limits of a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Time without use.
    pub after: Duration,
    /// Percent of the multiprocessors held.
    pub below_percent: f64,
}

/// Use of a claim in one look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Use {
    /// No container of its pods has started.
    NotStarted,
    /// The driver does not tell it.
    Unknown,
    /// Percent of the multiprocessors held, of the device with most use.
    Percent(f64),
}

/// A changed verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The claim is idle.
    Idle {
        /// Time of the first look without use.
        since: Duration,
        /// The highest use since then, percent; `None` while no container has started.
        highest: Option<f64>,
    },
    /// The claim is idle no longer, or as far as this process knows never was.
    NotIdle(Why),
}

/// Why a claim is not idle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// The first look at the claim: an earlier process may have said otherwise.
    FirstLook,
    /// Use above the limit, percent.
    InUse(f64),
    /// The use is not known.
    Unknown,
    /// A container has started.
    Started,
    /// The claim has other limits, or none.
    OtherLimits,
}

/// Time without use.
#[derive(Clone, Copy, Debug)]
struct Spell {
    since: Duration,
    /// As of [`Verdict::Idle`].
    highest: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    spell: Option<Spell>,
    is_idle: bool,
}

/// The state of all claims.
#[derive(Debug)]
pub struct IdleClaims {
    /// Longest time between two looks: after a longer one nothing is known of the time between.
    longest_gap: Duration,
    last_look: Option<Duration>,
    claims: BTreeMap<String, State>,
}

impl IdleClaims {
    /// No claims.
    pub fn new(longest_gap: Duration) -> Self {
        Self { longest_gap, last_look: None, claims: BTreeMap::new() }
    }

    /// Takes a look at all claims, by UID, and returns the changed verdicts. `now` is of a clock that never goes back. Claims
    /// without limits are never idle, and claims not looked at are forgotten.
    pub fn look(
        &mut self,
        now: Duration,
        claims: impl IntoIterator<Item = (String, Option<Limits>, Use)>,
    ) -> Vec<(String, Verdict)> {
        let is_gap = self.last_look.replace(now).is_some_and(|last| now - last > self.longest_gap);
        let mut known = std::mem::take(&mut self.claims);
        let mut changed = Vec::new();
        for (uid, limits, usage) in claims {
            let before = known.remove(&uid);
            if before.is_none() && limits.is_some() {
                changed.push((uid.clone(), Verdict::NotIdle(Why::FirstLook)));
            }
            let State { spell, is_idle } = before.unwrap_or_default();
            let next = next(now, spell.filter(|_| !is_gap), limits, usage);
            let verdict = match (is_idle, &next) {
                (true, Err(why)) => Some(Verdict::NotIdle(*why)),
                (_, Ok((spell, true))) if !is_idle => {
                    Some(Verdict::Idle { since: spell.since, highest: spell.highest })
                }
                (true, Ok((_, false))) => Some(Verdict::NotIdle(match usage {
                    _ if is_gap => Why::Unknown,
                    Use::Percent(_) if spell.is_some_and(|spell| spell.highest.is_none()) => Why::Started,
                    _ => Why::OtherLimits,
                })),
                _ => None,
            };
            changed.extend(verdict.map(|verdict| (uid.clone(), verdict)));
            let is_idle = matches!(next, Ok((_, true)));
            if limits.is_some() {
                self.claims.insert(uid, State { spell: next.ok().map(|(spell, _)| spell), is_idle });
            }
        }
        changed
    }
}

/// The time without use including this look, and whether the claim is idle by it.
fn next(
    now: Duration,
    before: Option<Spell>,
    limits: Option<Limits>,
    usage: Use,
) -> Result<(Spell, bool), Why> {
    let limits = limits.ok_or(Why::OtherLimits)?;
    let percent = match usage {
        Use::Unknown => return Err(Why::Unknown),
        Use::Percent(percent) if percent >= limits.below_percent => return Err(Why::InUse(percent)),
        Use::Percent(percent) => Some(percent),
        Use::NotStarted => None,
    };
    let goes_on = |spell: &Spell| {
        spell.highest.is_some() == percent.is_some()
            && spell.highest.is_none_or(|highest| highest < limits.below_percent)
    };
    let spell = match before.filter(goes_on) {
        Some(spell) => {
            Spell { highest: spell.highest.zip(percent).map(|(one, other)| one.max(other)), ..spell }
        }
        None => Spell { since: now, highest: percent },
    };
    Ok((spell, now - spell.since >= limits.after))
}

#[cfg(test)]
mod tests;
