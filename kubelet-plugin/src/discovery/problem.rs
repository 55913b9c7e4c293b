//! Unreadable facts, each logged once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tessera_api::PciBusId;
use tessera_nvml::{NvmlError, Reading};

/// An unreadable fact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The card; `None` for the machine.
    pub card: Option<PciBusId>,
    /// The fact, named like its attribute.
    pub fact: &'static str,
    /// The error.
    pub message: String,
}

/// The unreadable facts of one look.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

/// Problems already logged: each is logged once until resolved.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeSet<Problem>);

impl Problems {
    pub(super) fn add(&mut self, card: Option<PciBusId>, fact: &'static str, message: impl ToString) {
        self.0.push(Problem { card, fact, message: message.to_string() });
    }

    /// The answer, or the `known` value if there is none.
    pub(super) fn take<T>(
        &mut self,
        card: Option<PciBusId>,
        fact: &'static str,
        answer: Reading<T>,
        known: Option<T>,
    ) -> Option<T> {
        answer.unwrap_or_else(|error: NvmlError| {
            self.add(card, fact, error);
            known
        })
    }

    pub(super) fn append(&mut self, other: Problems) {
        self.0.extend(other.0);
    }

    pub(super) fn into_vec(self) -> Vec<Problem> {
        self.0
    }
}

impl Told {
    pub(super) fn tell(&mut self, problems: &[Problem]) {
        let now: BTreeSet<Problem> = problems.iter().cloned().collect();
        for (message, alike) in kinds(now.difference(&self.0)) {
            let (cards, facts) = (list(&alike.cards), list(&alike.facts));
            match cards {
                Some(cards) => tracing::warn!(cards, facts, "{message}"),
                None => tracing::warn!(facts, "{message}"),
            }
        }
        let passed: Vec<&Problem> = self.0.difference(&now).collect();
        let (cards, facts): (BTreeSet<_>, BTreeSet<_>) =
            passed.iter().map(|problem| (problem.card, problem.fact)).unzip();
        if !passed.is_empty() {
            let cards: BTreeSet<PciBusId> = cards.into_iter().flatten().collect();
            tracing::info!(cards = list(&cards), facts = list(&facts), "can be read again");
        }
        self.0 = now;
    }
}

/// One line for all problems with the same cause.
pub(super) fn lines(problems: &[Problem]) -> Vec<String> {
    let line = |(message, alike): (String, Alike)| {
        let facts = list(&alike.facts).unwrap_or_default();
        match list(&alike.cards) {
            Some(cards) => format!("{facts} of {cards}: {message}"),
            None => format!("{facts}: {message}"),
        }
    };
    kinds(problems.iter()).into_iter().map(line).collect()
}

/// Problems with the same cause.
#[derive(Debug, Default)]
struct Alike {
    cards: BTreeSet<PciBusId>,
    facts: BTreeSet<&'static str>,
}

/// Problems by their message. Messages that differ only in the card's address count as one: a problem of the whole node
/// is logged once, not for each card.
fn kinds<'a>(problems: impl Iterator<Item = &'a Problem>) -> BTreeMap<String, Alike> {
    let mut kinds: BTreeMap<String, (Alike, String)> = BTreeMap::new();
    for problem in problems {
        let address = problem.card.map(|card| card.to_string());
        let general = address
            .map_or_else(|| problem.message.clone(), |address| problem.message.replace(&address, "<card>"));
        let (alike, _) = kinds.entry(general).or_insert_with(|| (Alike::default(), problem.message.clone()));
        alike.cards.extend(problem.card);
        alike.facts.insert(problem.fact);
    }
    // If only one card is affected, keep its own message.
    let said = |(general, (alike, first)): (String, (Alike, String))| {
        (if alike.cards.len() > 1 { general } else { first }, alike)
    };
    kinds.into_iter().map(said).collect()
}

/// The items as one text; `None` if there are none.
fn list<T: ToString>(all: &BTreeSet<T>) -> Option<String> {
    let all: Vec<String> = all.iter().map(T::to_string).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.card {
            Some(card) => write!(f, "card {card}, {}: {}", self.fact, self.message),
            None => write!(f, "{}: {}", self.fact, self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_cards_lack_is_one_line() {
        let card = |bus| PciBusId::new(0, bus, 0, 0).unwrap();
        let problem = |card: PciBusId, fact, message: &str| Problem {
            card: Some(card),
            fact,
            message: message.replace("{}", &card.to_string()),
        };
        let mut problems = Vec::new();
        for card in [card(1), card(2)] {
            problems.push(problem(card, "pcieRoot", "can't read /sys/{}"));
            problems.push(problem(card, "numaNode", "can't read /sys/{}"));
        }
        problems.push(problem(card(2), "memory", "{} says nothing"));
        problems.push(Problem { card: None, fact: "cards", message: "no answer".into() });
        let kinds = kinds(problems.iter());
        let lines: Vec<_> = kinds
            .iter()
            .map(|(message, alike)| (message.as_str(), list(&alike.cards), list(&alike.facts).unwrap()))
            .collect();
        let both = Some("0000:01:00.0, 0000:02:00.0".to_owned());
        assert_eq!(
            lines,
            [
                ("0000:02:00.0 says nothing", Some("0000:02:00.0".to_owned()), "memory".to_owned()),
                ("can't read /sys/<card>", both, "numaNode, pcieRoot".to_owned()),
                ("no answer", None, "cards".to_owned()),
            ]
        );
        let lines = super::lines(&problems);
        assert_eq!(lines[0], "memory of 0000:02:00.0: 0000:02:00.0 says nothing");
        assert_eq!((lines.len(), &*lines[2]), (3, "cards: no answer"));
    }
}
