use std::fmt;
use std::sync::Arc;

use crate::error::{NvmlError, Reading};

/// A moment in the performance counters of a card or GPU instance (GPM, on Hopper and later). [`GpmSample::activity_since`]
/// computes the activity between two samples.
#[derive(Clone)]
pub struct GpmSample(pub(crate) Arc<dyn Sample>);

/// A sample, with its driver.
pub(crate) trait Sample: Send + Sync + 'static {
    fn activity_since(&self, earlier: &GpmSample) -> Result<Activity, NvmlError>;
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Activity of multiprocessors between two moments: each a share of them and of the time, 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Activity {
    /// With at least one warp (`NVML_GPM_METRIC_SM_UTIL`).
    pub sm: Reading<f64>,
    /// Resident warps, relative to the maximum (`NVML_GPM_METRIC_SM_OCCUPANCY`).
    pub sm_occupancy: Reading<f64>,
    /// With a tensor core in use (`NVML_GPM_METRIC_ANY_TENSOR_UTIL`).
    pub tensor: Reading<f64>,
    /// Of the memory's bandwidth (`NVML_GPM_METRIC_DRAM_BW_UTIL`).
    pub memory: Reading<f64>,
}

impl GpmSample {
    /// Activity since an earlier sample of the same card or instance.
    ///
    /// # Errors
    /// When the driver refuses; a figure with its own failure is an error in its own field.
    pub fn activity_since(&self, earlier: &GpmSample) -> Result<Activity, NvmlError> {
        self.0.activity_since(earlier)
    }
}

impl fmt::Debug for GpmSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GpmSample")
    }
}
