//! Answers for whole slices: slices of one kind have equal answers, so each is computed once for all machines of a model.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Answer, SelectorCache, SelectorIndex};
use crate::inventory::{DeviceRef, Inventory};

/// The selectors of a class and of a request of the class: each is evaluated only if the previous one matches.
pub(crate) type Chain = SmallVec<[SelectorIndex; 4]>;

/// By device of the slice, in order: whether all selectors match. `None` where a device has no answer.
pub(super) type OfKind = Option<Arc<[bool]>>;

impl SelectorCache {
    /// By device of the slice: whether all selectors of the chain match. `None` where the answer differs between slices of the kind,
    /// or a selector has no answer for some device.
    pub(crate) fn matches_of_slice(
        &mut self,
        chain: &Chain,
        inventory: &Inventory,
        place: u32,
    ) -> Option<Arc<[bool]>> {
        if chain.iter().any(|index| self.identifies[index.0 as usize]) {
            return None;
        }
        let slice = &inventory.slices[place as usize];
        if let Some(known) = self.of_kinds.get(chain).and_then(|kinds| kinds.get(&slice.kind)) {
            return known.clone();
        }
        let devices = (slice.first_device..slice.end_device).map(|index| DeviceRef { inventory, index });
        let answers: OfKind = devices.map(|device| self.matches_all(chain, device).ok()).collect();
        self.answers_of_kinds += 1 + slice.device_count() as usize / 16;
        self.of_kinds.entry_ref(chain).or_default().insert(slice.kind, answers.clone());
        answers
    }

    fn matches_all(&mut self, chain: &Chain, device: DeviceRef<'_>) -> Answer {
        for index in chain {
            if !self.matches(*index, device)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
