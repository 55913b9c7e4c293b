//! Facts about a machine and its cards, as reported by hardware and driver.
//!
//! Facts with a possible unknown value are `Option`s; unknown facts are not published.

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

/// All known facts of one machine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Version of the kernel driver, `580.95.05` (`nvmlSystemGetDriverVersion`).
    pub driver_version: Option<String>,
    /// Newest CUDA version supported by the driver, 1000 × major + 10 × minor: 13000
    /// (`nvmlSystemGetCudaDriverVersion_v2`).
    pub cuda_driver_version: Option<u32>,
    /// The cards, in any order.
    pub cards: Vec<Card>,
    /// Known facts of pairs of cards.
    pub pairs: Pairs,
}

impl Machine {
    /// The cards by PCI address. Of several cards with the same address only one is kept, independent of the order of
    /// enumeration.
    #[must_use]
    pub fn cards_by_address(&self) -> Vec<&Card> {
        let mut cards: Vec<&Card> = self.cards.iter().collect();
        cards.sort();
        cards.dedup_by_key(|card| card.pci);
        cards
    }
}
