//! Request mixes for boards of 8 memory slices.

/// How often each profile is requested.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Its name.
    pub name: &'static str,
    /// Profiles of an A100-80GB with their weights.
    pub weights: &'static [(&'static str, f64)],
}

/// Nine mixes from small to large. They are not those behind the figures by which the rules were first chosen: of those
/// only the means were kept. These were selected from some thirty plausible ones so that their means come near to
/// those (what that does and doesn't show: docs/benchmarks/mig-order.md).
pub const MIXES: [Mix; 9] = [
    Mix {
        name: "uniform",
        weights: &[
            ("1g.10gb", 1.0),
            ("1g.20gb", 1.0),
            ("2g.20gb", 1.0),
            ("3g.40gb", 1.0),
            ("4g.40gb", 1.0),
            ("7g.80gb", 1.0),
        ],
    },
    // Each half as often as the next smaller one.
    Mix {
        name: "halving",
        weights: &[("1g.10gb", 16.0), ("2g.20gb", 8.0), ("3g.40gb", 4.0), ("4g.40gb", 2.0), ("7g.80gb", 1.0)],
    },
    // All the same in compute slices.
    Mix {
        name: "equal compute",
        weights: &[
            ("1g.10gb", 1.0),
            ("2g.20gb", 1.0 / 2.0),
            ("3g.40gb", 1.0 / 3.0),
            ("4g.40gb", 1.0 / 4.0),
            ("7g.80gb", 1.0 / 7.0),
        ],
    },
    Mix {
        name: "small and large",
        weights: &[
            ("1g.10gb", 30.0),
            ("1g.20gb", 15.0),
            ("2g.20gb", 5.0),
            ("3g.40gb", 5.0),
            ("4g.40gb", 15.0),
            ("7g.80gb", 30.0),
        ],
    },
    Mix { name: "1g and 7g", weights: &[("1g.10gb", 1.0), ("7g.80gb", 1.0)] },
    Mix {
        name: "inference",
        weights: &[("1g.10gb", 50.0), ("1g.20gb", 20.0), ("2g.20gb", 20.0), ("3g.40gb", 10.0)],
    },
    Mix {
        name: "media",
        weights: &[("1g.10gb", 60.0), ("1g.10gb+me", 5.0), ("2g.20gb", 25.0), ("3g.40gb", 10.0)],
    },
    Mix {
        name: "training",
        weights: &[("2g.20gb", 10.0), ("3g.40gb", 40.0), ("4g.40gb", 20.0), ("7g.80gb", 30.0)],
    },
    Mix {
        name: "notebooks",
        weights: &[
            ("1g.10gb", 70.0),
            ("1g.20gb", 10.0),
            ("2g.20gb", 10.0),
            ("3g.40gb", 5.0),
            ("7g.80gb", 5.0),
        ],
    },
];

/// Mixes outside the nine for which the balanced order is not the best, found by searching for its weaknesses.
pub const AGAINST: [Mix; 4] = [
    Mix { name: "many 1g.20gb", weights: &[("1g.10gb", 30.0), ("1g.20gb", 40.0), ("3g.40gb", 30.0)] },
    Mix {
        name: "many +me",
        weights: &[("1g.10gb", 40.0), ("1g.10gb+me", 20.0), ("2g.20gb", 20.0), ("3g.40gb", 20.0)],
    },
    Mix { name: "1g and 4g", weights: &[("1g.10gb", 1.0), ("4g.40gb", 1.0)] },
    Mix { name: "1g, 2g and 4g", weights: &[("1g.10gb", 1.0), ("2g.20gb", 1.0), ("4g.40gb", 1.0)] },
];
