//! The values of a spec in text, as users write them.

use std::fmt;

use super::{Allocation, Strategy, TopologyPolicy};

impl fmt::Display for Allocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Allocation::Native => "Native",
            Allocation::Steered => "Steered",
            Allocation::Managed => "Managed",
        })
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Strategy::Pack => "Pack",
            Strategy::Spread => "Spread",
        })
    }
}

impl fmt::Display for TopologyPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            TopologyPolicy::Preferred => "Preferred",
            TopologyPolicy::Required => "Required",
            TopologyPolicy::Ignored => "Ignored",
        })
    }
}
