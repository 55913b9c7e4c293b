use std::fmt;

/// Kind of a published device: the value of [`crate::attribute::TYPE`], which DeviceClasses select on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceType {
    /// A whole card, for one claim.
    Gpu,
    /// A MIG partition, for one claim.
    Mig,
    /// A card shared by MPS, for several claims.
    Mps,
    /// A card shared by time-slicing, for several claims.
    TimeSlice,
}

impl DeviceType {
    /// The attribute's value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Mig => "mig",
            Self::Mps => "mps",
            Self::TimeSlice => "timeslice",
        }
    }
}

impl fmt::Display for DeviceType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
