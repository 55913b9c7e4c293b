use tessera_api::PciBusId;

use super::{CardSet, MAX_CARDS, Topology, align, link_groups, order};

/// Groups of cards of a machine, and the order of publication. Computed from all physical cards, not
/// only the free ones, so values do not change while claims exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Positions of all cards, in the order of publication.
    pub order: Vec<usize>,
    /// For claims with a preference for alignment: the best disjoint pairs.
    pub align_2: Vec<CardSet>,
    /// For claims with a preference for alignment: the best disjoint quads, each of two of the pairs in `align_2`.
    pub align_4: Vec<CardSet>,
    /// For claims requiring NVLink: any two cards of one group have the best connection of any two cards here.
    pub nvlink_2: Vec<CardSet>,
    /// As [`Self::nvlink_2`], for any four.
    pub nvlink_4: Vec<CardSet>,
}

/// A family of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// [`Groups::align_2`].
    Align2,
    /// [`Groups::align_4`].
    Align4,
    /// [`Groups::nvlink_2`].
    NvLink2,
    /// [`Groups::nvlink_4`].
    NvLink4,
}

impl Groups {
    /// The value of a card's attribute for `group`: the lowest PCI address of its group, unaffected by
    /// renumbering. `None` for a card in no group.
    #[must_use]
    pub fn value(&self, topology: &Topology, group: Group, card: usize) -> Option<PciBusId> {
        let sets = match group {
            Group::Align2 => &self.align_2,
            Group::Align4 => &self.align_4,
            Group::NvLink2 => &self.nvlink_2,
            Group::NvLink4 => &self.nvlink_4,
        };
        let set = sets.iter().find(|set| set.contains(card))?;
        topology.cards().get(set.lowest()).copied()
    }
}

/// See [`Topology::groups`].
pub fn find(topology: &Topology) -> Groups {
    let count = topology.cards.len();
    if count > MAX_CARDS {
        return Groups { order: (0..count).collect(), ..Groups::default() };
    }
    let nested = align::nested(topology);
    let (nvlink_2, nvlink_4) = link_groups::find(topology, &nested);
    if topology.is_uniform() {
        // All sets of cards are equally good: one group, instead of arbitrary pairs.
        let everything = |size: usize| if count >= size { vec![topology.all()] } else { Vec::new() };
        return Groups {
            order: (0..count).collect(),
            align_2: everything(2),
            align_4: everything(4),
            nvlink_2,
            nvlink_4,
        };
    }
    let order = order::find(topology, &nested);
    Groups { order, align_2: nested.pairs, align_4: nested.quads, nvlink_2, nvlink_4 }
}
