//! Quantiles of samples.

use std::time::Duration;

use serde::Serialize;

/// Median and 99th percentile, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Number of samples.
    pub samples: usize,
    /// Half were not slower.
    pub p50_ms: f64,
    /// 99 of 100 were not slower.
    pub p99_ms: f64,
}

impl Quantiles {
    /// Needs at least one sample; all zero without any.
    pub fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let at = |share: f64| {
            // Nearest rank; the index stays in range for any share up to 1.
            let rank = ((samples.len() as f64 * share).ceil() as usize).saturating_sub(1);
            samples.get(rank).map_or(0.0, |sample| sample.as_secs_f64() * 1e3)
        };
        Self { samples: samples.len(), p50_ms: at(0.5), p99_ms: at(0.99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank() {
        let quantiles = Quantiles::of((1..=200).rev().map(Duration::from_millis).collect());
        assert_eq!(quantiles, Quantiles { samples: 200, p50_ms: 100.0, p99_ms: 198.0 });
        assert_eq!(Quantiles::of(vec![]).p99_ms, 0.0);
    }
}
