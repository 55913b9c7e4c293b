//! Placement policies.

mod best_fit;
mod clustering;
mod dot_product;
mod fgd;
mod first_fit;
mod gpu_packing;
mod hami;
mod kai;
pub(crate) mod kube_scheduler;
mod random_fit;
pub(crate) mod scored;
mod tessera;
mod tessera_bare;

use std::fmt;
use std::str::FromStr;

use tessera_placement::packing::{Demand, Node, NodeValuePacking, Place};

use crate::{Random, Trace, TypicalPods};
use fgd::{Fgd, Ties};
use kube_scheduler::KubeScheduler;
use scored::{Cost, Scored};
use tessera::Others;

/// Chooses where pods run. Every call passes the same nodes.
pub trait Policy {
    /// A pod arrives. Returns a place with room for the pod, or `None` if no node has room.
    fn choose(&mut self, nodes: &[Node], demand: &Demand, random: &mut Random) -> Option<Place>;

    /// A pod was placed.
    fn placed(&mut self, nodes: &[Node], place: &Place, demand: &Demand) {
        let _ = (nodes, place, demand);
    }

    /// A pod departed.
    fn departed(&mut self, nodes: &[Node], place: &Place, demand: &Demand) {
        let _ = (nodes, place, demand);
    }
}

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyName {
    /// The decision loop of the controller, with the product's rules. Pods without cards are placed by [`Self::TesseraBare`].
    Tessera,
    /// Like `Tessera`, but kube-scheduler places pods without cards, as in production.
    TesseraKubeScheduler,
    /// The policy alone: [`tessera_placement::packing::NodeValuePacking`], learning the mix.
    TesseraBare,
    /// FGD (Weng et al., ATC 2023) as published, with the true mix.
    Fgd,
    /// FGD with best fit among nodes of equal score.
    FgdBestFit,
    /// FGD learning the mix from arrived pods.
    FgdLearning,
    /// The node with the least room left.
    BestFit,
    /// Cards in use before free cards before free nodes.
    Packing,
    /// Nodes with pods requesting the same number of cards.
    Clustering,
    /// The node whose free room is least aligned with the demand.
    DotProduct,
    /// HAMi with the node and the device policy `binpack`.
    HamiBinpack,
    /// KAI-Scheduler with the placement strategy `binpack`.
    KaiBinpack,
    /// kube-scheduler's own scorers, which ignore devices.
    KubeScheduler,
    /// The first node in order.
    FirstFit,
    /// Any node that fits.
    Random,
}

/// An unknown policy name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name} here; there are {}", known.iter().map(|policy| policy.name()).collect::<Vec<_>>().join(", "))]
pub struct UnknownPolicy {
    /// The name as given.
    name: String,
    /// The known policies.
    known: Vec<PolicyName>,
}

impl PolicyName {
    /// All policies.
    pub const ALL: [Self; 15] = [
        Self::Tessera,
        Self::TesseraKubeScheduler,
        Self::TesseraBare,
        Self::Fgd,
        Self::FgdBestFit,
        Self::FgdLearning,
        Self::BestFit,
        Self::Packing,
        Self::Clustering,
        Self::DotProduct,
        Self::HamiBinpack,
        Self::KaiBinpack,
        Self::KubeScheduler,
        Self::FirstFit,
        Self::Random,
    ];

    /// Policies for [a workload on a fleet](crate::fleet): all except the partial variants of Tessera.
    #[must_use]
    pub fn of_fleets() -> Vec<Self> {
        let in_part = [Self::TesseraKubeScheduler, Self::TesseraBare];
        Self::ALL.into_iter().filter(|policy| !in_part.contains(policy)).collect()
    }

    /// The policy of this name among `known`.
    ///
    /// # Errors
    /// No policy in `known` has this name.
    pub fn among(known: &[Self], name: &str) -> Result<Self, UnknownPolicy> {
        let found = known.iter().copied().find(|policy| policy.name() == name);
        found.ok_or_else(|| UnknownPolicy { name: name.to_owned(), known: known.to_vec() })
    }

    /// The policy's name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tessera => "tessera",
            Self::TesseraKubeScheduler => "tessera-kube-scheduler",
            Self::TesseraBare => "tessera-bare",
            Self::Fgd => "fgd",
            Self::FgdBestFit => "fgd-best-fit",
            Self::FgdLearning => "fgd-learning",
            Self::BestFit => "best-fit",
            Self::Packing => "packing",
            Self::Clustering => "clustering",
            Self::DotProduct => "dot-product",
            Self::HamiBinpack => "hami-binpack",
            Self::KaiBinpack => "kai-binpack",
            Self::KubeScheduler => "kube-scheduler",
            Self::FirstFit => "first-fit",
            Self::Random => "random",
        }
    }

    /// Whether the policy runs the decision loop, which takes much longer.
    #[must_use]
    pub const fn is_loop(self) -> bool {
        matches!(self, Self::Tessera | Self::TesseraKubeScheduler)
    }

    /// Whether the policy chooses among nodes at random on a [fleet](crate::fleet).
    #[must_use]
    pub const fn uses_seed(self) -> bool {
        matches!(self, Self::KubeScheduler | Self::Random)
    }

    /// The cost function of this policy for `nodes` empty nodes, if the policy scores nodes. `typical` is the true mix.
    pub(crate) fn cost(self, nodes: usize, typical: impl FnOnce() -> TypicalPods) -> Option<Box<dyn Cost>> {
        Some(match self {
            Self::Fgd => Box::new(Fgd::knowing(typical(), Ties::First)),
            Self::FgdBestFit => Box::new(Fgd::knowing(typical(), Ties::BestFit)),
            Self::FgdLearning => Box::new(Fgd::learning()),
            Self::BestFit => Box::new(best_fit::BestFit),
            Self::Packing => Box::new(gpu_packing::GpuPacking),
            Self::Clustering => Box::new(clustering::Clustering::new(nodes)),
            Self::DotProduct => Box::new(dot_product::DotProduct),
            Self::HamiBinpack => Box::new(hami::Used::new(nodes)),
            Self::KaiBinpack => Box::new(kai::Kai),
            Self::Tessera
            | Self::TesseraKubeScheduler
            | Self::TesseraBare
            | Self::KubeScheduler
            | Self::FirstFit
            | Self::Random => return None,
        })
    }

    /// The policy at the start of a run on these nodes.
    #[must_use]
    pub fn start(self, trace: &Trace, nodes: &[Node]) -> Box<dyn Policy> {
        let bare = || NodeValuePacking::new(nodes);
        if let Some(cost) = self.cost(nodes.len(), || trace.typical_pods()) {
            let without_cards = (self == Self::HamiBinpack).then(KubeScheduler::default);
            return Box::new(Scored::new(cost, nodes.len(), without_cards));
        }
        match self {
            Self::Tessera => Box::new(tessera::Tessera::new(nodes, Others::Bare(Box::new(bare())))),
            Self::TesseraKubeScheduler => {
                Box::new(tessera::Tessera::new(nodes, Others::KubeScheduler(KubeScheduler::default())))
            }
            Self::KubeScheduler => Box::new(KubeScheduler::default()),
            Self::FirstFit => Box::new(first_fit::FirstFit),
            Self::Random => Box::new(random_fit::RandomFit),
            // `TesseraBare`: all others have a cost.
            _ => Box::new(bare()),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::among(&Self::ALL, text)
    }
}
