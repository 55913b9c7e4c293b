use std::fmt;

/// CUDA compute capability (`nvmlDeviceGetCudaComputeCapability`): 9.0 on Hopper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComputeCapability {
    /// The number before the dot.
    pub major: u32,
    /// The number after the dot.
    pub minor: u32,
}

impl ComputeCapability {
    /// Whether the driver can set the length of time-slices (`nvidia-smi compute-policy --set-timeslice`).
    ///
    /// Setting the length takes preemption between instructions: Volta or later, or the P100. A Tesla P4 (6.1) answers "Not Supported"
    /// (issue 41 of NVIDIA's DRA driver, and its maintainers in pull request 1183).
    #[must_use]
    pub const fn has_time_slice_lengths(self) -> bool {
        self.major >= 7 || (self.major == 6 && self.minor == 0)
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}
