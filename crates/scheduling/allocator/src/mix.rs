//! 128-bit hashes of search states and of kinds of slices.

use std::hash::{Hash, Hasher};

/// Hash of a value. A collision of two states would lose a solution, so 64 bits are too few for a million states; with
/// 128 a pair collides with a probability of 2^-128.
pub(crate) fn mix(value: impl Hash) -> u128 {
    let mut mixer = Mixer { low: 0x243f_6a88_85a3_08d3, high: 0x1319_8a2e_0370_7344 };
    value.hash(&mut mixer);
    // Two more rounds, so the last word reaches all bits.
    mixer.write_u64(0xa409_3822_299f_31d0);
    mixer.write_u64(0x082e_fa98_ec4e_6c89);
    u128::from(mixer.high) << 64 | u128::from(mixer.low)
}

/// Two chains of multiplications that feed each other.
struct Mixer {
    low: u64,
    high: u64,
}

fn fold(one: u64, two: u64) -> u64 {
    let product = u128::from(one) * u128::from(two);
    product as u64 ^ (product >> 64) as u64
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    fn write_u64(&mut self, word: u64) {
        let low = fold(self.low ^ word, 0x9e37_79b9_7f4a_7c15).wrapping_add(self.high.rotate_left(23));
        self.high = fold(self.high ^ word.rotate_left(32), 0xc2b2_ae3d_27d4_eb4f).wrapping_add(low);
        self.low = low;
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    fn write_i128(&mut self, word: i128) {
        self.write_u128(word as u128);
    }

    fn finish(&self) -> u64 {
        self.low
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::mix;

    #[test]
    fn different_things_differ_in_both_halves() {
        let mut low = HashSet::new();
        let mut high = HashSet::new();
        for one in 0..300u32 {
            for two in 0..300u32 {
                let mixed = mix((one, two));
                assert!(low.insert(mixed as u64) && high.insert((mixed >> 64) as u64), "{one} {two}");
            }
        }
        assert_eq!(mix("a"), mix("a"));
        assert_ne!(mix(vec![1u32, 2]), mix(vec![2u32, 1]));
        assert_ne!(mix((vec![1u32], vec![2u32])), mix((vec![1u32, 2], Vec::<u32>::new())));
    }

    /// Sets are represented by sums of hashes, so no bit may be biased.
    #[test]
    fn each_bit_is_as_often_one_as_zero() {
        let mut ones = [0i32; 128];
        for number in 0..10_000u32 {
            let mixed = mix((number, 7u32));
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += if mixed >> bit & 1 == 1 { 1 } else { -1 };
            }
        }
        assert!(ones.iter().all(|count| count.abs() < 600), "{ones:?}");
    }
}
