use nvml_wrapper_sys::bindings as sys;

use super::{Functions, Handle, function};
use crate::error::NvmlError;

/// Storage for a sample. Any thread may use the storage, one at a time for writing: writes happen only before sharing.
pub(in crate::library) struct GpmHandle(sys::nvmlGpmSample_t);

// SAFETY: memory that the library allocated and that only its functions follow; NVML is thread-safe.
unsafe impl Send for GpmHandle {}
// SAFETY: as above; once filled it is only read.
unsafe impl Sync for GpmHandle {}

const fn no_metric(id: u32) -> sys::nvmlGpmMetric_t {
    sys::nvmlGpmMetric_t {
        metricId: id,
        nvmlReturn: 0,
        value: 0.0,
        metricInfo: sys::nvmlGpmMetric_t__bindgen_ty_1 {
            shortName: std::ptr::null_mut(),
            longName: std::ptr::null_mut(),
            unit: std::ptr::null_mut(),
        },
    }
}

impl Functions {
    /// Whether the card has such counters.
    pub(in crate::library) fn gpm_support(&self, card: Handle) -> Result<bool, NvmlError> {
        /// `NVML_GPM_SUPPORT_VERSION`
        const VERSION: u32 = 1;
        let empty = sys::nvmlGpmSupport_t { version: VERSION, isSupportedDevice: 0 };
        function!(self, nvmlGpmQueryDeviceSupport)
            .read(card, empty)
            .map(|support| support.isSupportedDevice != 0)
    }

    pub(in crate::library) fn gpm_sample_alloc(&self) -> Result<GpmHandle, NvmlError> {
        let function = function!(self, nvmlGpmSampleAlloc);
        let alloc = function.get()?;
        let mut sample = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        function.check(unsafe { alloc(&raw mut sample) })?;
        if sample.is_null() { Err(function.nonsense("no sample")) } else { Ok(GpmHandle(sample)) }
    }

    pub(in crate::library) fn gpm_sample_free(&self, sample: &GpmHandle) {
        if let Ok(free) = function!(self, nvmlGpmSampleFree).get() {
            // SAFETY: allocated by the same library and freed once: the handle is not `Copy`, and its owner is being dropped.
            let _ = unsafe { free(sample.0) };
        }
    }

    /// Fills a sample with the counters of a card, or of a GPU instance of it.
    pub(in crate::library) fn gpm_sample_get(
        &self,
        card: Handle,
        gpu_instance: Option<u32>,
        sample: &GpmHandle,
    ) -> Result<(), NvmlError> {
        if let Some(id) = gpu_instance {
            let function = function!(self, nvmlGpmMigSampleGet);
            let get = function.get()?;
            // SAFETY: writes into the sample, which the library allocated for that.
            return function.check(unsafe { get(card.0, id, sample.0) });
        }
        let function = function!(self, nvmlGpmSampleGet);
        let get = function.get()?;
        // SAFETY: as above.
        function.check(unsafe { get(card.0, sample.0) })
    }

    /// Metrics between two samples, in the library's units.
    pub(in crate::library) fn gpm_metrics<const N: usize>(
        &self,
        earlier: &GpmHandle,
        later: &GpmHandle,
        ids: [u32; N],
    ) -> Result<[Result<f64, NvmlError>; N], NvmlError> {
        let function = function!(self, nvmlGpmMetricsGet);
        let get = function.get()?;
        let mut request = Box::new(sys::nvmlGpmMetricsGet_t {
            version: sys::NVML_GPM_METRICS_GET_VERSION,
            numMetrics: N as u32,
            sample1: earlier.0,
            sample2: later.0,
            metrics: [no_metric(0); sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_MAX as usize],
        });
        for (metric, id) in request.metrics.iter_mut().zip(ids) {
            metric.metricId = id;
        }
        // SAFETY: reads two samples of its own and `numMetrics` records, and writes those: there are more of them.
        function.check(unsafe { get(&raw mut *request) })?;
        let mut answers = request.metrics.iter();
        Ok(ids.map(|id| match answers.next() {
            Some(metric) => function.check(metric.nvmlReturn).and_then(|()| match metric.value {
                value if value.is_finite() => Ok(value),
                value => Err(function.nonsense(format!("metric {id} of {value}"))),
            }),
            None => Err(function.nonsense(format!("no metric {id}"))),
        }))
    }
}
