//! A size or a cost known to lie between two bounds, with cel-go's saturating arithmetic.

/// Bounds of a size or cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Range {
    pub min: u64,
    pub max: u64,
}

impl Range {
    /// Nothing is known.
    pub(super) const UNKNOWN: Range = Range { min: 0, max: u64::MAX };
    /// Neutral element of `union`.
    pub(super) const NONE: Range = Range { min: u64::MAX, max: 0 };

    pub(super) fn exactly(value: u64) -> Range {
        Range { min: value, max: value }
    }

    pub(super) fn up_to(max: u64) -> Range {
        Range { min: 0, max }
    }

    pub(super) fn add(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn multiply(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Times a factor, rounded up.
    pub(super) fn times(self, factor: f64) -> Range {
        Range { min: times(self.min, factor), max: times(self.max, factor) }
    }

    /// The smallest range containing both.
    pub(super) fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

fn times(value: u64, factor: f64) -> u64 {
    // A cast from a float saturates; upstream does the same by hand.
    let product = (value as f64 * factor).ceil();
    if product >= u64::MAX as f64 { u64::MAX } else { product as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overflows() {
        assert_eq!(Range::UNKNOWN.add(Range::exactly(1)), Range { min: 1, max: u64::MAX });
        assert_eq!(Range::UNKNOWN.multiply(Range::exactly(3)), Range::UNKNOWN);
        assert_eq!(Range::UNKNOWN.times(2.0), Range::UNKNOWN);
        assert_eq!(Range::exactly(11).times(0.1), Range::exactly(2));
        assert_eq!(Range::exactly(0).multiply(Range::UNKNOWN), Range::exactly(0));
    }
}
