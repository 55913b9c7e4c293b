//! Who chooses where pods go.

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
mod scored;
mod tessera;
mod tessera_bare;

use std::fmt;
use std::str::FromStr;

use tessera_packing::{Demand, Node, Place};

use crate::{Random, Trace};
use fgd::Ties;
use scored::Scored;
use tessera::Others;

/// Chooses where pods go. One and the same nodes are shown to it throughout.
pub trait Policy {
    /// A pod arrives. `None` when no node has room; what is chosen has.
    fn choose(&mut self, nodes: &[Node], demand: &Demand, random: &mut Random) -> Option<Place>;

    /// It is there now.
    fn placed(&mut self, nodes: &[Node], place: &Place, demand: &Demand) {
        let _ = (nodes, place, demand);
    }

    /// A pod left.
    fn departed(&mut self, nodes: &[Node], place: &Place, demand: &Demand) {
        let _ = (nodes, place, demand);
    }
}

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyName {
    /// The decision loop of the controller, with the product's rules; pods without cards go where [`Self::TesseraBare`] puts them.
    Tessera,
    /// The same with pods without cards left to kube-scheduler, as the controller leaves them.
    TesseraKubeScheduler,
    /// The policy alone: [`tessera_packing::NodeValuePacking`], learning the mix.
    TesseraBare,
    /// FGD (Weng et al., ATC 2023) as published, with the true mix.
    Fgd,
    /// The same with best fit among equals.
    FgdBestFit,
    /// FGD that learns the mix from what arrived.
    FgdLearning,
    /// The node that has least left.
    BestFit,
    /// Cards in use before free cards before free nodes.
    Packing,
    /// Nodes with pods that ask for as many cards.
    Clustering,
    /// The node whose free room is least aligned with what is asked for.
    DotProduct,
    /// HAMi with the node and the device policy `binpack`.
    HamiBinpack,
    /// KAI-Scheduler with the placement strategy `binpack`.
    KaiBinpack,
    /// kube-scheduler's own scorers, which do not look at devices.
    KubeScheduler,
    /// The first node in order.
    FirstFit,
    /// Any node that fits.
    Random,
}

/// A name that no policy has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name}; there are {}", PolicyName::names())]
pub struct UnknownPolicy {
    /// As it was given.
    name: String,
}

impl PolicyName {
    /// All of them.
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

    /// As it is written.
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

    /// Whether it goes through the decision loop, which takes much longer.
    #[must_use]
    pub const fn is_loop(self) -> bool {
        matches!(self, Self::Tessera | Self::TesseraKubeScheduler)
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The policy, at the start of a run on these nodes.
    #[must_use]
    pub fn start(self, trace: &Trace, nodes: &[Node]) -> Box<dyn Policy> {
        match self {
            Self::Tessera => {
                let others = Others::Bare(Box::new(tessera_bare::TesseraBare::new(nodes)));
                Box::new(tessera::Tessera::new(nodes, others))
            }
            Self::TesseraKubeScheduler => {
                let others = Others::KubeScheduler(kube_scheduler::KubeScheduler::default());
                Box::new(tessera::Tessera::new(nodes, others))
            }
            Self::TesseraBare => Box::new(tessera_bare::TesseraBare::new(nodes)),
            Self::Fgd => Box::new(fgd::Fgd::knowing(trace.typical_pods(), Ties::First, nodes.len())),
            Self::FgdBestFit => Box::new(fgd::Fgd::knowing(trace.typical_pods(), Ties::BestFit, nodes.len())),
            Self::FgdLearning => Box::new(fgd::Fgd::learning(nodes.len())),
            Self::BestFit => Box::new(Scored::new(best_fit::BestFit, nodes.len())),
            Self::Packing => Box::new(Scored::new(gpu_packing::GpuPacking, nodes.len())),
            Self::Clustering => Box::new(Scored::new(clustering::Clustering::new(nodes.len()), nodes.len())),
            Self::DotProduct => Box::new(Scored::new(dot_product::DotProduct, nodes.len())),
            Self::HamiBinpack => Box::new(hami::Hami::new(nodes.len())),
            Self::KaiBinpack => Box::new(Scored::new(kai::Kai, nodes.len())),
            Self::KubeScheduler => Box::new(kube_scheduler::KubeScheduler::default()),
            Self::FirstFit => Box::new(first_fit::FirstFit),
            Self::Random => Box::new(random_fit::RandomFit),
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
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| UnknownPolicy { name: text.to_owned() })
    }
}
