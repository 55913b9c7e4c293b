//! Answers of costly selectors, found before the allocation that needs them and a part at a time, so that nobody has to wait for all of them.
//!
//! What a part may take is counted in cost, as Kubernetes counts it for a selector's limit, and not in time: the same questions take as
//! many parts wherever they are asked.

use std::sync::Arc;

use super::{Chain, SelectorCache, SelectorIndex};
use crate::claim::{Ask, Claim, Classes};
use crate::inventory::{DeviceIndex, DeviceRef, Inventory};

/// Highest estimate of a selector's cost for a device up to which it is answered when it is needed.
const CHEAP: u64 = 5_000;

/// What it costs to find a known answer, in the same unit.
const LOOKUP: u64 = 25;

/// Largest number of chains of selectors of which is remembered how far they are.
const MOST_CHAINS: usize = 4_096;

/// How far a chain is answered.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Devices of the inventory before this one are done. New ones come last.
    next: DeviceIndex,
    costliest: Option<(SelectorIndex, u64)>,
}

/// Not all devices are answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    /// Devices that are.
    pub done: usize,
    /// All devices.
    pub devices: usize,
    /// The selector that has cost most so far.
    pub expression: Arc<str>,
    /// What it has cost for a device, as Kubernetes counts it; at most [`tessera_cel::COST_LIMIT`] and a little.
    pub cost: u64,
}

impl SelectorCache {
    /// Answers the costly selectors of these claims for devices of the inventory that have no answer yet, until all have, or `budget` is
    /// used up, from which the cost is taken. Where it succeeds, allocating these claims evaluates nothing that is costly.
    ///
    /// # Errors
    /// What is left: another call goes on with it.
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
            // One of an unknown kind, or that does not compile, ends every allocation.
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
                    // What is begun is ended, so that each part gets on.
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
