//! Slices of one kind: alike but for their names, nodes and pools, as of machines of one model.

use std::hash::BuildHasher as _;

use super::{DeviceRef, Inventory, Slice};
use crate::mix::mix;

/// The kind of a slice. Slices of one kind have equal devices in the same order: names, attributes, capacities, consumed counters and
/// taints are the same, except for the attribute identifying a card: `uuid`, or `parentUUID`.
///
/// A hash of 128 bits with a seed of the inventory: two kinds are confused with a probability of 2^-128. A kind never stands for
/// other devices later, whatever the inventory is changed to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SliceKind(u128);

/// Names of attributes, without their domain, with different values on devices alike in everything else.
const IDENTITIES: [&str; 2] = ["uuid", "parentUUID"];

/// Whether the attribute of this name, with or without its domain, identifies a card.
pub(crate) fn is_identity(name: &str) -> bool {
    IDENTITIES.contains(&name.rsplit_once('/').map_or(name, |(_, id)| id))
}

impl Inventory {
    /// The kinds of the slices for this node alone, in the order of [`Self::devices_of_node`].
    pub fn kinds_of_node(&self, node: &str) -> impl Iterator<Item = SliceKind> {
        let slices = self.names.find(node).and_then(|name| self.on_node.get(&name));
        slices.into_iter().flatten().map(|place| self.slices[*place as usize].kind)
    }

    /// The kind of a slice, whose devices were added already.
    pub(super) fn kind_of(&self, slice: &Slice) -> SliceKind {
        // Numbers of names and values mean something else in each inventory, and after a compaction, which makes a new one.
        let seed = self.hasher.hash_one(0);
        let devices = (slice.first_device..slice.end_device).map(|index| {
            let record = &self.devices[index as usize];
            let device = (record.name, record.shape, record.extra, record.consumptions);
            mix((device, DeviceRef { inventory: self, index }.stored_cells()))
        });
        SliceKind(devices.fold(mix(seed), |kind, device| mix((kind, device))))
    }

    /// Lets a slice whose devices were just added have the cells of another one of its kind.
    pub(super) fn share_cells(&mut self, slice: &Slice) {
        if slice.first_device == slice.end_device {
            return;
        }
        let added = self.devices[slice.first_device as usize].cells;
        let shared = *self.cells_of_kinds.entry(slice.kind).or_insert(added);
        if shared != added {
            let devices = slice.first_device as usize..slice.end_device as usize;
            self.devices[devices].iter_mut().for_each(|device| device.cells = device.cells - added + shared);
            self.cells.truncate(added as usize);
        }
    }
}
