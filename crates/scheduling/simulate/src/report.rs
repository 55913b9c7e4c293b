//! Means over runs.

use serde::{Serialize, Serializer};

use crate::filling::LOADS;
use crate::{Filling, PolicyName};

/// Mean and standard deviation of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation; 0 for a single value.
    pub deviation: f64,
    /// Number of values.
    pub count: usize,
}

impl Spread {
    /// Mean and deviation of these values, summed in this order.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count.max(1) as f64;
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        let deviation = (squares / count.saturating_sub(1).max(1) as f64).sqrt();
        Self { mean, deviation, count }
    }

    /// Half the width of the 95 % confidence interval of the mean, by Student's distribution.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        /// Quantiles 0.975 for 1 to 30 degrees of freedom.
        const QUANTILES: [f64; 30] = [
            12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
            2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052,
            2.048, 2.045, 2.042,
        ];
        match self.count {
            0 | 1 => f64::INFINITY,
            count => {
                let quantile = QUANTILES.get(count - 2).copied().unwrap_or(1.96);
                quantile * self.deviation / (count as f64).sqrt()
            }
        }
    }
}

/// One value for each of [`LOADS`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ByLoad(pub [f64; 4]);

impl Serialize for ByLoad {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A ten-thousandth of a percent is less than one card even in the largest fleets.
        let rounded = self.0.map(|value| (value * 1e4).round() / 1e4);
        serializer.collect_map(LOADS.map(|load| load.to_string()).into_iter().zip(rounded))
    }
}

/// Results of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyReport {
    /// Percent of the cards allocated, mean over the runs.
    pub allocated_at: ByLoad,
    /// Standard deviation of `allocated_at` between the runs.
    pub sd: ByLoad,
    /// Percent of the free cards that a typical pod cannot use, mean over the runs.
    pub fragmentation_at: ByLoad,
}

/// Results of the policies, in the requested order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Each policy's runs, in the order of their seeds.
    #[serde(serialize_with = "summaries")]
    pub policies: Vec<(PolicyName, Vec<Filling>)>,
}

impl Report {
    /// Means of one policy's runs.
    #[must_use]
    pub fn summary(runs: &[Filling]) -> PolicyReport {
        let spread = |values: fn(&Filling) -> [f64; 4]| {
            [0, 1, 2, 3]
                .map(|load| Spread::of(&runs.iter().map(|run| values(run)[load]).collect::<Vec<f64>>()))
        };
        let allocated = spread(|run| run.allocated);
        PolicyReport {
            allocated_at: ByLoad(allocated.map(|spread| spread.mean)),
            sd: ByLoad(allocated.map(|spread| spread.deviation)),
            fragmentation_at: ByLoad(spread(|run| run.fragmentation).map(|spread| spread.mean)),
        }
    }

    /// Difference in allocated cards between two policies' runs on the same arrivals, at one of [`LOADS`].
    #[must_use]
    pub fn ahead(runs: &[Filling], others: &[Filling], load: usize) -> Spread {
        let pairs = runs.iter().zip(others);
        Spread::of(
            &pairs.map(|(run, other)| run.allocated[load] - other.allocated[load]).collect::<Vec<f64>>(),
        )
    }
}

/// Means of each policy's runs, by its name.
fn summaries<S: Serializer>(
    policies: &[(PolicyName, Vec<Filling>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(policies.iter().map(|(policy, runs)| (policy.name(), Report::summary(runs))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_that_programs_read() {
        let run = |allocated| Filling { allocated: [allocated; 4], fragmentation: [50.0; 4] };
        let report = Report { policies: vec![(PolicyName::BestFit, vec![run(90.0), run(91.0)])] };
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            "{\"policies\":{\"best-fit\":{\"allocated_at\":{\"80\":90.5,\"95\":90.5,\"100\":90.5,\"130\":90.5},\
             \"sd\":{\"80\":0.7071,\"95\":0.7071,\"100\":0.7071,\"130\":0.7071},\
             \"fragmentation_at\":{\"80\":50.0,\"95\":50.0,\"100\":50.0,\"130\":50.0}}}}"
        );
    }

    #[test]
    fn intervals_are_students() {
        assert!((Spread::of(&[1.0, 2.0, 3.0]).half_width() - 4.303 / 3.0_f64.sqrt()).abs() < 1e-12);
        assert!(Spread::of(&[1.0]).half_width().is_infinite());
    }
}
