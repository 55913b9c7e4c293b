use std::any::Any;
use std::sync::Arc;

use nvml_wrapper_sys::bindings as sys;

use super::functions::GpmHandle;
use super::{Library, Session};
use crate::error::{NvmlError, Reading};
use crate::gpm::{Activity, GpmSample, Sample};
use tessera_api::PciBusId;

/// The metrics requested for two samples, in the order of [`Activity`]'s fields.
const METRICS: [u32; 4] = [
    sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL,
    sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_OCCUPANCY,
    sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_DRAM_BW_UTIL,
];

/// A sample of the driver's, freed with this value.
struct Taken {
    session: Arc<Session>,
    handle: GpmHandle,
}

impl Library {
    pub(super) fn take_gpm_sample(
        &self,
        address: PciBusId,
        gpu_instance: Option<u32>,
    ) -> Result<Option<GpmSample>, NvmlError> {
        let Session { functions, handles, .. } = &*self.session;
        let card = handles.get(functions, address)?;
        if NvmlError::reading(functions.gpm_support(card))? != Some(true) {
            return Ok(None);
        }
        let taken = Taken { session: Arc::clone(&self.session), handle: functions.gpm_sample_alloc()? };
        let filled = functions.gpm_sample_get(card, gpu_instance, &taken.handle);
        Ok(NvmlError::reading(filled)?.map(|()| GpmSample(Arc::new(taken))))
    }
}

impl Sample for Taken {
    fn activity_since(&self, earlier: &GpmSample) -> Result<Activity, NvmlError> {
        const METRIC: &str = "nvmlGpmMetricsGet";
        let earlier = earlier.0.as_any().downcast_ref::<Taken>();
        // Only a sample of the same session can be read.
        let Some(earlier) = earlier.filter(|earlier| Arc::ptr_eq(&earlier.session, &self.session)) else {
            let value = "a sample of another session".to_owned();
            return Err(NvmlError::Nonsense { function: METRIC, value });
        };
        let answers = self.session.functions.gpm_metrics(&earlier.handle, &self.handle, METRICS)?;
        let ratio = |answer: Result<f64, NvmlError>| -> Reading<f64> {
            match NvmlError::reading(answer)? {
                // Rounding may give a little more than all.
                Some(percent) if (0.0..=101.0).contains(&percent) => Ok(Some((percent / 100.0).min(1.0))),
                Some(percent) => {
                    Err(NvmlError::Nonsense { function: METRIC, value: format!("{percent} percent") })
                }
                None => Ok(None),
            }
        };
        let [sm, sm_occupancy, tensor, memory] = answers.map(ratio);
        Ok(Activity { sm, sm_occupancy, tensor, memory })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.session.functions.gpm_sample_free(&self.handle);
    }
}
