//! Facts about a machine and its cards, as its hardware and driver state them.
//!
//! A fact that may be unknown is an `Option`; unknown facts are not published.

mod card;
mod mig;
mod pairs;

pub use card::{Card, Health};
pub use mig::Mig;
pub use pairs::{Pair, Pairs};
pub use tessera_api::facts::{
    ClusterUuid, CommonAncestor, ComputeCapability, ComputeInstance, Fabric, FabricState, GpuInstance,
    GpuInstanceProfile, NvLink, NvLinkRemote, NvLinkVersion, Placement,
};

/// Everything known of one machine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Version of the kernel driver, `580.95.05` (`nvmlSystemGetDriverVersion`).
    pub driver_version: Option<String>,
    /// Newest CUDA version the driver supports, 1000 × major + 10 × minor: 13000
    /// (`nvmlSystemGetCudaDriverVersion_v2`).
    pub cuda_driver_version: Option<u32>,
    /// The cards, in any order.
    pub cards: Vec<Card>,
    /// What is known of pairs of cards.
    pub pairs: Pairs,
}

impl Machine {
    /// The cards by PCI address. Of several cards with the same address it has only one, independent of the order of
    /// enumeration.
    #[must_use]
    pub fn cards_by_address(&self) -> Vec<&Card> {
        let mut cards: Vec<&Card> = self.cards.iter().collect();
        cards.sort();
        cards.dedup_by_key(|card| card.pci);
        cards
    }
}
