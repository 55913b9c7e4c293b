/// Numbers that look random and are the same in every run (SplitMix64).
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 to below 1, evenly.
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// A position, by weights that sum to 1.
    pub fn weighted(&mut self, shares: &[f64]) -> usize {
        let mut left = self.unit();
        for (position, share) in shares.iter().enumerate() {
            left -= share;
            if left < 0.0 {
                return position;
            }
        }
        shares.len() - 1
    }
}
