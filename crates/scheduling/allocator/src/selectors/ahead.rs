//! Answers of costly selectors, computed part by part ahead of the allocation needing them, so nobody has to wait for all of them.
//!
//! The budget of a part is counted in cost, as Kubernetes counts cost for a selector's limit, and not in time: the same questions
//! take as many parts on every machine.

use std::sync::Arc;

use super::{Chain, SelectorCache, SelectorIndex};
use crate::claim::{Ask, Claim, Classes};
use crate::inventory::{DeviceIndex, DeviceRef, Inventory};

/// Largest estimated cost of a selector for a device to be answered only when needed.
const CHEAP: u64 = 5_000;

/// Cost of looking up a known answer, in the same unit.
const LOOKUP: u64 = 25;

/// Largest number of chains of selectors with stored progress.
const MOST_CHAINS: usize = 4_096;

/// Progress of answering a chain.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Devices of the inventory before this one are done. New ones come last.
    next: DeviceIndex,
    costliest: Option<(SelectorIndex, u64)>,
}

/// Not all devices are answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    /// Answered devices.
    pub done: usize,
    /// All devices.
    pub devices: usize,
    /// The costliest selector so far.
    pub expression: Arc<str>,
    /// Its cost for a device, as Kubernetes counts cost; at most [`tessera_cel::COST_LIMIT`] and a little.
    pub cost: u64,
}

impl SelectorCache {
    /// Answers the costly selectors of these claims for unanswered devices of the inventory, until all are answered or `budget` is
    /// used up; each cost is subtracted from `budget`. After success, allocating these claims evaluates no costly selector.
    ///
    /// # Errors
    /// The remaining work: another call continues.
    pub fn answer_ahead(
        &mut self,
        inventory: &Inventory,
        classes: &Classes,
        claims: &[Claim],
        budget: &mut u64,
    ) -> Result<(), Unanswered> {
        self.begin(inventory);
        if self.ahead.len() > MOST_CHAINS {
            self.ahead.clear();
        }
        for chain in self.costly_chains(classes, claims) {
            let mut progress = self.ahead.remove(&chain).unwrap_or_default();
            let is_done = self.go_on(inventory, &chain, &mut progress, budget);
            let (costliest, cost) = progress.costliest.unwrap_or((chain[0], 0));
            let done = progress.next as usize;
            self.ahead.insert(chain, progress);
            if !is_done {
                let devices = inventory.devices.len();
                let expression = Arc::clone(&self.texts[costliest.0 as usize]);
                return Err(Unanswered { done, devices, expression, cost });
            }
        }
        Ok(())
    }

    /// The selectors of each request, class and request together, with a costly one among them.
    fn costly_chains(&mut self, classes: &Classes, claims: &[Claim]) -> Vec<Chain> {
        let mut chains = Vec::new();
        let requests = claims.iter().flat_map(|claim| &claim.requests);
        let asks = requests.flat_map(|request| match &request.ask {
            Ask::Exactly(ask) => std::slice::from_ref(ask),
            Ask::FirstAvailable(asks) => asks,
            Ask::Unknown => &[],
        });
        for ask in asks {
            let Some(class) = classes.get(&ask.class) else { continue };
            // A selector of an unknown kind or with a compile error ends every allocation.
            let known = class.selectors.iter().chain(&ask.selectors).map_while(Option::as_ref);
            let mut chain = Chain::new();
            for expression in known {
                let index = self.compile(expression);
                if self.selector(index).is_err() {
                    break;
                }
                chain.push(index);
            }
            let is_costly = chain.iter().any(|index| self.estimates[index.0 as usize] > CHEAP);
            if is_costly && !chains.contains(&chain) {
                chains.push(chain);
            }
        }
        chains
    }

    /// Whether all devices are answered now.
    fn go_on(
        &mut self,
        inventory: &Inventory,
        chain: &[SelectorIndex],
        progress: &mut Progress,
        budget: &mut u64,
    ) -> bool {
        while (progress.next as usize) < inventory.devices.len() {
            if inventory.is_there(progress.next) {
                let device = DeviceRef { inventory, index: progress.next };
                for index in chain {
                    // A started device is finished, so each part makes progress.
                    if *budget == 0 {
                        return false;
                    }
                    let (answer, cost) = self.answer(*index, device);
                    *budget = budget.saturating_sub(cost + LOOKUP);
                    if progress.costliest.is_none_or(|(_, most)| most < cost) {
                        progress.costliest = Some((*index, cost));
                    }
                    if answer != Ok(true) {
                        break;
                    }
                }
            }
            progress.next += 1;
        }
        true
    }
}
