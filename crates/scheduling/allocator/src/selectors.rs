//! Compiled selectors and their cached answers.

mod ahead;
mod kinds;

use std::sync::Arc;

use hashbrown::HashMap;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_cel::{CompileError, Environment, Evaluation, EvaluationError, Reads, Selector};

use ahead::Progress;
pub use ahead::Unanswered;
pub(crate) use kinds::Chain;
use kinds::OfKind;

use crate::inventory::{DeviceRef, Inventory, SliceKind, is_identity};

/// A selector of a [`SelectorCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SelectorIndex(u32);

/// Largest number of cached expressions; at this number all are dropped.
const MOST_SELECTORS: usize = 4_096;

/// Largest number of cached answers; at this number all are dropped.
const MOST_ANSWERS: usize = 1 << 20;

/// Compiled selectors by their text, and their answers by the values read. Keep the cache for as long as allocations are
/// computed.
#[derive(Debug, Default)]
pub struct SelectorCache {
    environment: Environment,
    by_text: HashMap<Arc<str>, SelectorIndex>,
    texts: Vec<Arc<str>>,
    selectors: Vec<Result<Selector, CompileError>>,
    /// Their [`Selector::max_cost`].
    estimates: Vec<u64>,
    /// Whether their answers may depend on attributes identifying a card, see [`SliceKind`].
    identifies: Vec<bool>,
    /// The inventory of the answers.
    inventory: Option<Arc<()>>,
    plans: Vec<Plan>,
    plan_index: HashMap<(SelectorIndex, u32), u32>,
    /// The plan used last: most consecutive devices have the same shape.
    last: Option<((SelectorIndex, u32), u32)>,
    answers: usize,
    of_kinds: HashMap<Chain, HashMap<SliceKind, OfKind>>,
    /// Size of [`Self::of_kinds`], with sixteen devices as one answer. Dropped apart: they are cheap beside costly answers.
    answers_of_kinds: usize,
    /// Progress of answering costly chains for all devices.
    ahead: HashMap<Chain, Progress>,
}

type Answer = Result<bool, EvaluationError>;

/// Plan for answering a selector for devices of one shape.
#[derive(Debug)]
struct Plan {
    /// The device's cells read by the selector.
    cells: Vec<u32>,
    answers: Answers,
}

#[derive(Debug)]
enum Answers {
    /// One or two cells are read.
    Short(HashMap<u64, Answer>),
    Long(HashMap<Box<[u32]>, Answer>),
    /// Too many cells are read to cache answers, except costly ones.
    Costly(HashMap<Box<[u32]>, Answer>),
}

/// Largest number of cells for which answers are cached.
const MOST_CELLS: usize = 16;

/// Cost from which an answer is cached despite any number of cells: evaluation takes longer than anything else.
const COSTLY: u64 = 2_000;

impl SelectorCache {
    /// An empty cache, of selectors as kube-scheduler of the newest known release reads them.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty cache, of selectors as kube-scheduler of this release reads them.
    pub fn of(version: KubernetesVersion) -> Self {
        SelectorCache { environment: version.into(), ..Self::default() }
    }

    /// Prepares the cache for an allocation in an inventory; drops answers about another inventory.
    pub(crate) fn begin(&mut self, inventory: &Inventory) {
        let is_same = self.inventory.as_ref().is_some_and(|known| Arc::ptr_eq(known, &inventory.identity));
        if !is_same || self.answers > MOST_ANSWERS || self.selectors.len() > MOST_SELECTORS {
            self.inventory = Some(Arc::clone(&inventory.identity));
            self.plans.clear();
            self.plan_index.clear();
            self.last = None;
            self.answers = 0;
            self.of_kinds.clear();
            self.answers_of_kinds = 0;
            self.ahead.clear();
        }
        if self.answers_of_kinds > MOST_ANSWERS {
            self.of_kinds.clear();
            self.answers_of_kinds = 0;
        }
        if self.selectors.len() > MOST_SELECTORS {
            self.by_text.clear();
            self.texts.clear();
            self.selectors.clear();
            self.estimates.clear();
            self.identifies.clear();
        }
    }

    /// The selector with this text, compiled on first use.
    pub(crate) fn compile(&mut self, expression: &Arc<str>) -> SelectorIndex {
        if let Some(index) = self.by_text.get(expression) {
            return *index;
        }
        let index = SelectorIndex(self.selectors.len() as u32);
        let selector = Selector::compile_with(expression, self.environment);
        self.estimates.push(selector.as_ref().map_or(0, Selector::max_cost));
        self.identifies.push(selector.as_ref().is_ok_and(|selector| identifies(selector.reads())));
        self.selectors.push(selector);
        self.texts.push(Arc::clone(expression));
        self.by_text.insert(Arc::clone(expression), index);
        index
    }

    /// The compiled selector.
    pub(crate) fn selector(&self, index: SelectorIndex) -> Result<&Selector, &CompileError> {
        self.selectors[index.0 as usize].as_ref()
    }

    /// Whether a device matches; the selector must have compiled.
    pub(crate) fn matches(&mut self, index: SelectorIndex, device: DeviceRef<'_>) -> Answer {
        self.answer(index, device).0
    }

    /// As [`Self::matches`], with the cost: nothing for a known answer.
    fn answer(&mut self, index: SelectorIndex, device: DeviceRef<'_>) -> (Answer, u64) {
        let Ok(selector) = &self.selectors[index.0 as usize] else { return (Ok(false), 0) };
        if device.has_defect() {
            return (selector.matches(&device), 0);
        }
        let shape = device.shape_index();
        let key = (index, shape);
        let place = match self.last {
            Some((last, place)) if last == key => place,
            _ => *self.plan_index.entry(key).or_insert_with(|| {
                self.plans.push(Plan::new(selector, device));
                self.plans.len() as u32 - 1
            }),
        };
        self.last = Some((key, place));
        let plan = &mut self.plans[place as usize];
        let cell = |at: usize| plan.cells.get(at).map_or(0, |cell| u64::from(device.cell(*cell as usize)));
        match &mut plan.answers {
            Answers::Short(answers) => {
                let key = cell(0) | cell(1) << 32;
                if let Some(answer) = answers.get(&key) {
                    return (answer.clone(), 0);
                }
                let Evaluation { result, cost } = selector.evaluate(&device);
                answers.insert(key, result.clone());
                self.answers += 1;
                (result, cost)
            }
            Answers::Long(answers) => {
                let mut key = [0; MOST_CELLS];
                let key = &mut key[..plan.cells.len()];
                for (slot, cell) in key.iter_mut().zip(&plan.cells) {
                    *slot = device.cell(*cell as usize);
                }
                if let Some(answer) = answers.get(&*key) {
                    return (answer.clone(), 0);
                }
                let Evaluation { result, cost } = selector.evaluate(&device);
                answers.insert((&*key).into(), result.clone());
                self.answers += 1;
                (result, cost)
            }
            Answers::Costly(answers) => {
                let key =
                    || plan.cells.iter().map(|cell| device.cell(*cell as usize)).collect::<Box<[u32]>>();
                let known = if answers.is_empty() { None } else { answers.get(&key()) };
                if let Some(answer) = known {
                    return (answer.clone(), 0);
                }
                let Evaluation { result, cost } = selector.evaluate(&device);
                if cost >= COSTLY {
                    // Takes as much memory as several short answers.
                    self.answers += 1 + plan.cells.len() / MOST_CELLS;
                    answers.insert(key(), result.clone());
                }
                (result, cost)
            }
        }
    }
}

/// Whether an attribute [identifying](is_identity) a card is read.
fn identifies(reads: &Reads) -> bool {
    let mut attributes = reads.attributes.iter();
    reads.all_attributes
        || !reads.attribute_domains.is_empty()
        || attributes.any(|(_, name)| is_identity(name))
}

impl Plan {
    fn new(selector: &Selector, device: DeviceRef<'_>) -> Self {
        let (reads, shape, inventory) = (selector.reads(), device.shape(), device.inventory);
        let driver = device.driver_name();
        let mut cells = Vec::new();
        for (index, name) in shape.attributes.iter().enumerate() {
            let (domain, id) = tessera_cel::split_name(inventory.text(*name), driver);
            let is_read = reads.all_attributes
                || reads.attribute_domains.contains(domain)
                || reads.attributes.contains(&(domain.to_owned(), id.to_owned()));
            if is_read {
                cells.push(index as u32);
            }
        }
        for (index, name) in shape.capacities.iter().enumerate() {
            let (domain, id) = tessera_cel::split_name(inventory.text(*name), driver);
            let is_read = reads.all_capacity
                || reads.capacity_domains.contains(domain)
                || reads.capacity.contains(&(domain.to_owned(), id.to_owned()));
            if is_read {
                cells.push((shape.attributes.len() + index) as u32);
            }
        }
        let answers = match cells.len() {
            0..=2 => Answers::Short(HashMap::new()),
            3..=MOST_CELLS => Answers::Long(HashMap::new()),
            _ => Answers::Costly(HashMap::new()),
        };
        Plan { cells, answers }
    }
}
