//! UUIDs and serial numbers that depend on the seed alone.

use sha2::{Digest, Sha256};

/// 32 bytes derived from the given words only.
fn digest(words: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for word in words {
        hash.update((word.len() as u64).to_le_bytes());
        hash.update(word.as_bytes());
    }
    hash.finalize().into()
}

/// A UUID in its usual form, without a prefix. NVIDIA's carry no version bits.
pub fn uuid(words: &[&str]) -> String {
    let hexadecimal: String = digest(words)[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{}-{}-{}-{}-{}",
        &hexadecimal[..8],
        &hexadecimal[8..12],
        &hexadecimal[12..16],
        &hexadecimal[16..20],
        &hexadecimal[20..]
    )
}

/// A serial number: 13 digits, as boards have.
pub fn serial(words: &[&str]) -> String {
    let bytes = digest(words);
    let number = bytes[..8].iter().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("{:013}", number % 10_000_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_give_the_same_identity() {
        assert_eq!(uuid(&["a", "b"]), uuid(&["a", "b"]));
        assert_ne!(uuid(&["a", "b"]), uuid(&["ab", ""]));
        assert_eq!(uuid(&["a"]).len(), 36);
        assert_eq!(serial(&["a"]).len(), 13);
    }
}
