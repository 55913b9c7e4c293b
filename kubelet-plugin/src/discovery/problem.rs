use std::collections::BTreeSet;
use std::fmt;

use tessera_api::PciBusId;
use tessera_nvml::{NvmlError, Reading};

/// One thing that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The card; `None` for the machine.
    pub card: Option<PciBusId>,
    /// What was to be read, as an attribute is called.
    pub fact: &'static str,
    /// What went wrong.
    pub message: String,
}

/// What could not be read this time.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

/// Which problems were already told, so that each is told once until it passes.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeSet<Problem>);

impl Problems {
    pub(super) fn add(&mut self, card: Option<PciBusId>, fact: &'static str, message: impl ToString) {
        self.0.push(Problem { card, fact, message: message.to_string() });
    }

    /// The answer, or what was `known` before where there is none.
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
        for problem in now.difference(&self.0) {
            match problem.card {
                Some(card) => tracing::warn!(%card, fact = problem.fact, "{}", problem.message),
                None => tracing::warn!(fact = problem.fact, "{}", problem.message),
            }
        }
        for problem in self.0.difference(&now) {
            match problem.card {
                Some(card) => tracing::info!(%card, fact = problem.fact, "can be read again"),
                None => tracing::info!(fact = problem.fact, "can be read again"),
            }
        }
        self.0 = now;
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.card {
            Some(card) => write!(f, "card {card}, {}: {}", self.fact, self.message),
            None => write!(f, "{}: {}", self.fact, self.message),
        }
    }
}
