//! One look: the answers of all cards, each asked on a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_api::PciBusId;
use tessera_api::facts::GpuInstance;
use tessera_inventory::machine::{Card, Pair, Pairs};
use tessera_nvml::Nvml;

use super::Discovery;
use super::answer::{Answer, read_card};
use crate::discovery::facts::{self, Sources};
use crate::discovery::health::HealthBook;
use crate::discovery::problem::Problems;
use crate::discovery::readers::{Question, Subject};
use crate::discovery::resets::Counted;

/// All cards' answers.
#[derive(Default)]
pub(super) struct Reading {
    /// Cards with an answer, or known from before.
    pub(super) cards: Vec<Card>,
    pub(super) pairs: Pairs,
    pub(super) gone: Vec<PciBusId>,
    pub(super) instances: Vec<(PciBusId, Vec<GpuInstance>)>,
    pub(super) counted: BTreeMap<PciBusId, Counted>,
    /// Cards with a hanging call.
    pub(super) hanging: BTreeSet<PciBusId>,
    pub(super) problems: Problems,
}

/// The report of one card about its connections to the cards after it.
type Row = (Vec<(PciBusId, Pair)>, Problems);

impl Discovery {
    /// Asks all present cards, and for each pair of them how they are connected.
    pub(super) fn reading(
        &mut self,
        sources: &Sources,
        present: &[PciBusId],
        health: &HealthBook,
    ) -> Reading {
        let mut reading = Reading::default();
        let mut live = Vec::new();
        for (pci, answer) in present.iter().zip(self.ask(sources, present, health)) {
            let Some(answer) = answer else {
                reading.hanging.insert(*pci);
                reading.cards.extend(self.cards.get(pci).cloned());
                continue;
            };
            reading.problems.append(answer.problems);
            reading.counted.insert(*pci, answer.counted);
            reading.instances.extend(answer.instances.map(|instances| (*pci, instances)));
            match answer.card {
                _ if answer.gone => reading.gone.push(*pci),
                Some(card) => {
                    live.push(*pci);
                    reading.cards.push(card);
                }
                None => {}
            }
        }
        reading.pairs = self.read_pairs(&sources.nvml, &live, &mut reading.problems);
        reading
    }

    /// The cards' answers, in the order of the cards; `None` for a hanging card.
    fn ask(&mut self, sources: &Sources, present: &[PciBusId], health: &HealthBook) -> Vec<Option<Answer>> {
        let question = |&pci: &PciBusId| {
            let (sources, known) = (sources.clone(), self.cards.get(&pci).cloned());
            let with_instances = health.misses_slices(pci);
            let question: Question<Answer> =
                Box::new(move || read_card(&sources, pci, known, with_instances));
            (Subject::Card(pci), question)
        };
        let questions = present.iter().map(question).collect();
        self.readers.ask(questions).into_iter().map(|(_, answer)| answer).collect()
    }

    fn read_pairs(&mut self, nvml: &Arc<dyn Nvml>, present: &[PciBusId], problems: &mut Problems) -> Pairs {
        let mut all = self.pairs.clone();
        let question = |row: usize| {
            let pci = present[row];
            let known = |&other: &PciBusId| (other, all.get(pci, other));
            let others: Vec<_> = present[row + 1..].iter().map(known).collect();
            let nvml = nvml.clone();
            let question: Question<Row> = Box::new(move || {
                let mut own = Problems::default();
                let pair =
                    |(other, known)| (other, facts::pair(pci, other, nvml.pair(pci, other), known, &mut own));
                (others.into_iter().map(pair).collect(), own)
            });
            (Subject::Pairs(pci), question)
        };
        let questions = (0..present.len()).map(question).collect();
        for (pci, (_, row)) in present.iter().zip(self.readers.ask(questions)) {
            let Some((pairs, own)) = row else { continue };
            for (other, pair) in pairs {
                all.insert(*pci, other, pair);
            }
            problems.append(own);
        }
        all
    }
}
