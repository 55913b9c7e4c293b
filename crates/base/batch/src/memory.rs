use std::fmt;
use std::str::FromStr;

use crate::time_limit::whole;

/// Most memory: a pebibyte.
const MOST_MIB: u64 = 1 << 30;

/// A value of `--mem`, `--mem-per-cpu` or `--mem-per-gpu`, in MiB. Slurm's units are powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory(u64);

impl Memory {
    /// In MiB. As `--mem=0`, 0 stands for all memory of a node.
    #[must_use]
    pub const fn mib(self) -> u64 {
        self.0
    }

    /// This much for each of so many.
    #[must_use]
    pub const fn times(self, count: u32) -> Self {
        Memory(self.0.saturating_mul(count as u64))
    }
}

impl FromStr for Memory {
    type Err = String;

    /// A whole number with the unit K, M (default), G or T.
    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected a whole number with K, M, G or T, as in 64G";
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number = whole(number).filter(|_| !number.is_empty()).ok_or(FORM)?;
        let mib = match unit.to_ascii_uppercase().as_str() {
            "K" | "KB" => Some(number.div_ceil(1024)),
            "" | "M" | "MB" => Some(number),
            "G" | "GB" => number.checked_mul(1024),
            "T" | "TB" => number.checked_mul(1024 * 1024),
            _ => return Err(FORM.to_owned()),
        };
        Ok(Memory(mib.filter(|mib| *mib <= MOST_MIB).ok_or("more than a node can have")?))
    }
}

/// As a quantity of Kubernetes.
impl fmt::Display for Memory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            mib if mib % 1024 == 0 => write!(formatter, "{}Gi", mib / 1024),
            mib => write!(formatter, "{mib}Mi"),
        }
    }
}
