use crate::machine::{GpuInstanceProfile, Mig, Placement};

/// The instances on a card while a layout is built.
pub(super) struct Room<'a> {
    whole: Engines,
    placed: Vec<(&'a GpuInstanceProfile, Placement)>,
}

/// Engines held by one instance alone. Copy engines may be shared.
#[derive(Clone, Copy, Default)]
struct Engines {
    decoders: u64,
    encoders: u64,
    jpeg: u64,
    ofa: u64,
}

impl<'a> Room<'a> {
    /// An empty card.
    pub(super) fn new(mig: &Mig) -> Self {
        // The profile of the whole card has all engines.
        let most = |of: fn(&GpuInstanceProfile) -> u32| mig.profiles.iter().map(of).max().unwrap_or(0).into();
        let whole = Engines {
            decoders: most(|profile| profile.decoders),
            encoders: most(|profile| profile.encoders),
            jpeg: most(|profile| profile.jpeg_engines),
            ofa: most(|profile| profile.ofa_engines),
        };
        Self { whole, placed: Vec::new() }
    }

    pub(super) fn placed(&self) -> &[(&'a GpuInstanceProfile, Placement)] {
        &self.placed
    }

    /// Whether the hardware would create the instance: free slices, below the profile's limit, enough engines left.
    pub(super) fn has(&self, profile: &GpuInstanceProfile, placement: Placement) -> bool {
        let same = self.placed.iter().filter(|(placed, _)| placed.id == profile.id).count();
        let free = placement.size > 0 && self.placed.iter().all(|(_, placed)| !placed.overlaps(placement));
        free && same < profile.max_instances as usize && {
            let placed = self.placed.iter().map(|(placed, _)| *placed);
            let sum = placed.chain([profile]).fold(Engines::default(), |sum, one| Engines {
                decoders: sum.decoders + u64::from(one.decoders),
                encoders: sum.encoders + u64::from(one.encoders),
                jpeg: sum.jpeg + u64::from(one.jpeg_engines),
                ofa: sum.ofa + u64::from(one.ofa_engines),
            });
            sum.decoders <= self.whole.decoders
                && sum.encoders <= self.whole.encoders
                && sum.jpeg <= self.whole.jpeg
                && sum.ofa <= self.whole.ofa
        }
    }

    pub(super) fn place(&mut self, profile: &'a GpuInstanceProfile, placement: Placement) {
        self.placed.push((profile, placement));
    }

    pub(super) fn take_back(&mut self) {
        self.placed.pop();
    }
}
