/// Which profiles are asked for, by how much.
pub struct Mix {
    pub name: &'static str,
    /// Sizes (`1g`, `1gx2` for the one with double memory) with their weights.
    pub weights: &'static [(&'static str, f64)],
}

/// Nine mixes: mostly small, mostly large, two sizes that get in each other's way, and a bit of everything.
pub fn all() -> Vec<Mix> {
    let mix = |name, weights| Mix { name, weights };
    vec![
        mix("all alike", &[("1g", 1.0), ("2g", 1.0), ("3g", 1.0), ("4g", 1.0), ("7g", 1.0)]),
        mix("mostly small", &[("1g", 70.0), ("2g", 20.0), ("3g", 10.0)]),
        mix("notebooks", &[("1g", 60.0), ("1gx2", 30.0), ("3g", 10.0)]),
        mix("1g + 3g", &[("1g", 70.0), ("3g", 30.0)]),
        mix("2g + 3g", &[("2g", 60.0), ("3g", 40.0)]),
        mix("1g + 4g", &[("1g", 80.0), ("4g", 20.0)]),
        mix("1g + 7g", &[("1g", 90.0), ("7g", 10.0)]),
        mix("mostly large", &[("2g", 20.0), ("3g", 40.0), ("4g", 20.0), ("7g", 20.0)]),
        mix("1g + 2g + 3g + double memory", &[("1g", 40.0), ("1gx2", 20.0), ("2g", 20.0), ("3g", 20.0)]),
    ]
}
