//! The product's choice among the partitions of all cards of a managed pool ([`tessera_placement::value::Partitions`]),
//! by the mix learnt on the way.

use std::collections::HashMap;

use anyhow::Result;
use tessera_api::ProfileSpelling;
use tessera_placement::value::{Placements, RequestMix};

use super::published::{Allocated, Published};

/// The learnt state.
#[derive(Clone, Debug)]
pub struct Managed {
    profiles: Vec<ProfileSpelling>,
    placements: Placements,
    mix: RequestMix,
    weights: Vec<u64>,
    /// By memory slices in use and to be taken: losses computed since the last change of the weights.
    losses: HashMap<(u64, u64), u64>,
}

impl Managed {
    /// Knowing nothing of the requests.
    ///
    /// # Errors
    /// When a profile is not spelt as one.
    pub fn new(published: &Published) -> Result<Self> {
        let profiles = published.spellings()?;
        let placements = published.placements().map(|(profile, slices)| (profiles[profile].clone(), slices));
        let placements = Placements::new(placements);
        let mix = RequestMix::default();
        Ok(Self { weights: mix.weights(&profiles), profiles, placements, mix, losses: HashMap::new() })
    }

    /// A partition of this profile is asked for.
    pub fn arrived(&mut self, profile: usize) {
        self.mix.arrived(&self.profiles[profile]);
        let weights = self.mix.weights(&self.profiles);
        if weights != self.weights {
            self.weights = weights;
            self.losses.clear();
        }
    }

    /// A partition is given back.
    pub fn departed(&mut self) {
        self.mix.departed();
    }

    /// The cheapest device of a profile, with its node. Among equals the first node, and there, as in the loop, the
    /// first card, and its partition nearest to the end. The loop first looks at other candidates on equal nodes.
    pub fn choose(
        &mut self,
        published: &Published,
        nodes: &[Allocated],
        profile: usize,
    ) -> Option<(usize, usize)> {
        let Self { placements, mix, losses, .. } = self;
        let partitions = placements.with(mix);
        let mut best = None;
        for (index, node) in nodes.iter().enumerate() {
            for device in published.of_profile(profile) {
                let (slices, used) = published.slices(node, *device);
                if slices & used != 0 || !published.fits(node, *device) {
                    continue;
                }
                let loss = *losses.entry((used, slices)).or_insert_with(|| partitions.loss(used, slices));
                let cost = (loss, index, published.card_of(*device), slices.leading_zeros());
                if best.is_none_or(|(least, _)| cost < least) {
                    best = Some((cost, *device));
                }
            }
        }
        best.map(|((_, node, ..), device)| (node, device))
    }
}
