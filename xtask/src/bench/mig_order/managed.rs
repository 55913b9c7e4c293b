//! The product's choice among the partitions of all cards of a managed pool ([`tessera_placement::value::Partitions`]), by the mix that it
//! learns as it goes.

use std::collections::HashMap;

use anyhow::Result;
use tessera_api::ProfileSpelling;
use tessera_placement::value::{Placements, RequestMix};

use super::published::{Allocated, Published};

/// What was learnt.
#[derive(Clone, Debug)]
pub struct Managed {
    profiles: Vec<ProfileSpelling>,
    placements: Placements,
    mix: RequestMix,
    weights: Vec<u64>,
    /// By memory slices in use and to be taken: what was computed since the weights changed.
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

    /// The device of a profile that costs least, with its node. Among equals the first node, and there, as in the loop, the first card,
    /// and of that the one nearest to its end. The loop first looks at what else equal nodes could take.
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
