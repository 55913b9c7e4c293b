use std::fmt;

/// A set of CPUs (`nvmlDeviceGetCpuAffinity`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    cpus: Vec<u32>,
}

impl CpuSet {
    /// From a bit mask, CPU 0 in the lowest bit of the first word.
    pub(crate) fn from_words(words: &[u64]) -> Self {
        let cpus = words
            .iter()
            .zip((0u32..).step_by(64))
            .flat_map(|(word, first)| {
                (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
            })
            .collect();
        CpuSet { cpus }
    }

    /// The CPUs' numbers, ascending.
    #[must_use]
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }
}

/// As Linux writes it in `cpulist` files: `0-31,64-95`.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, run) in self.cpus.chunk_by(|a, b| a + 1 == *b).enumerate() {
            let separator = if position == 0 { "" } else { "," };
            match run {
                [only] => write!(f, "{separator}{only}")?,
                [first, .., last] => write!(f, "{separator}{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_as_linux_does() {
        assert_eq!(CpuSet::from_words(&[0b1011, 0, 1 << 63]).to_string(), "0-1,3,191");
        assert_eq!(CpuSet::from_words(&[u64::MAX, 1]).to_string(), "0-64");
        assert_eq!(CpuSet::from_words(&[0, 0]).to_string(), "");
        assert_eq!(CpuSet::from_words(&[0, 0b110]).cpus(), [65, 66]);
    }
}
