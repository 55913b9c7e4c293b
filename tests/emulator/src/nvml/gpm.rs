//! Performance counters of cards and GPU instances (GPM): samples, and the work done between two.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvml_wrapper_sys::bindings::{nvmlGpmMetric_t, nvmlGpmMetricsGet_t, nvmlGpmSupport_t};

use super::call::nvml_functions;
use super::context::{CardView, Context};
use super::ffi::Out;
use crate::failure::Failure;
use crate::hardware::board::Architecture;

/// `NVML_GPM_SUPPORT_VERSION`, `NVML_GPM_METRICS_GET_VERSION`
const VERSION: u32 = 1;

/// Supported metrics, with the name of the part in faults, and the share caused by a program keeping multiprocessors
/// busy: made up.
const METRICS: [(u32, &str, f64); 4] = [
    (2, "NVML_GPM_METRIC_SM_UTIL", 1.0),
    (3, "NVML_GPM_METRIC_SM_OCCUPANCY", 0.5),
    (5, "NVML_GPM_METRIC_ANY_TENSOR_UTIL", 0.25),
    (10, "NVML_GPM_METRIC_DRAM_BW_UTIL", 0.4),
];

/// A moment in the counters.
#[derive(Clone, Copy)]
struct Sample {
    card: u32,
    gpu_instance: Option<u32>,
    at: u64,
    busy: u64,
}

/// The samples of this process, by number. The number is the handle, so a wrong handle is reported and never dereferenced.
static SAMPLES: Mutex<Samples> = Mutex::new(Samples { last: 0, of: BTreeMap::new() });

struct Samples {
    last: usize,
    of: BTreeMap<usize, Option<Sample>>,
}

fn samples() -> MutexGuard<'static, Samples> {
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `nvmlGpmSample_t`
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct SampleHandle(usize);

/// `nvmlGpmMetricsGet_t` up to its records, whose number differs between versions of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MetricsGet {
    version: u32,
    count: u32,
    one: SampleHandle,
    other: SampleHandle,
}

const _: () = assert!(size_of::<MetricsGet>() == std::mem::offset_of!(nvmlGpmMetricsGet_t, metrics));

fn supported(view: &CardView<'_>) -> bool {
    view.card.board.architecture >= Architecture::Hopper
}

fn take(view: &CardView<'_>, gpu_instance: Option<u32>, handle: SampleHandle) -> Result<(), Failure> {
    if !supported(view) {
        return Err(Failure::NOT_SUPPORTED);
    }
    let meter = view.meter();
    let busy = match gpu_instance {
        None => meter.busy,
        Some(id) => meter.instances.get(&id).copied().unwrap_or(0),
    };
    let sample = Sample { card: view.card.index, gpu_instance, at: meter.until, busy };
    *samples().of.get_mut(&handle.0).ok_or(Failure::INVALID_ARGUMENT)? = Some(sample);
    Ok(())
}

/// A sample taken earlier.
fn taken(handle: SampleHandle) -> Result<Sample, Failure> {
    samples().of.get(&handle.0).copied().flatten().ok_or(Failure::INVALID_ARGUMENT)
}

fn metric(context: &Context, one: Sample, other: Sample, id: u32) -> Result<f64, Failure> {
    let (_, part, factor) =
        METRICS.into_iter().find(|(known, ..)| *known == id).ok_or(Failure::NOT_SUPPORTED)?;
    context.card(one.card)?.part(part)?;
    let time = other.at.saturating_sub(one.at);
    if time == 0 {
        return Err(Failure::NO_DATA);
    }
    Ok(other.busy.saturating_sub(one.busy) as f64 / time as f64 * factor)
}

nvml_functions! {
    /// `nvmlGpmQueryDeviceSupport`
    fn nvmlGpmQueryDeviceSupport(view: CardView, support: Out<nvmlGpmSupport_t>) {
        let asked = support.get()?;
        if asked.version != VERSION {
            return Err(Failure::ARGUMENT_VERSION_MISMATCH);
        }
        support.set(nvmlGpmSupport_t { isSupportedDevice: supported(&view).into(), ..asked })
    }

    /// `nvmlGpmSampleGet`: here not of a card in MIG mode, whose instances have samples of their own.
    fn nvmlGpmSampleGet(view: CardView, sample: SampleHandle) {
        if view.state.mig.enabled {
            return Err(Failure::NOT_SUPPORTED);
        }
        take(&view, None, sample)
    }

    /// `nvmlGpmMigSampleGet`
    fn nvmlGpmMigSampleGet(view: CardView, gpu_instance: u32, sample: SampleHandle) {
        if !view.state.mig.instances.iter().any(|instance| instance.id == gpu_instance) {
            return Err(Failure::INVALID_ARGUMENT);
        }
        take(&view, Some(gpu_instance), sample)
    }
}

nvml_functions! {
    /// `nvmlGpmSampleAlloc`
    fn nvmlGpmSampleAlloc(_context: &Context, sample: Out<SampleHandle>) {
        if sample.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        let mut samples = samples();
        samples.last += 1;
        let number = samples.last;
        samples.of.insert(number, None);
        sample.set(SampleHandle(number))
    }

    /// `nvmlGpmSampleFree`
    fn nvmlGpmSampleFree(_context: &Context, sample: SampleHandle) {
        samples().of.remove(&sample.0).map(|_| ()).ok_or(Failure::INVALID_ARGUMENT)
    }

    /// `nvmlGpmMetricsGet`
    fn nvmlGpmMetricsGet(context: &Context, request: Out<MetricsGet>) {
        let asked = request.get()?;
        if asked.version != VERSION {
            return Err(Failure::ARGUMENT_VERSION_MISMATCH);
        }
        let (one, other) = (taken(asked.one)?, taken(asked.other)?);
        if (one.card, one.gpu_instance) != (other.card, other.gpu_instance) {
            return Err(Failure::INVALID_ARGUMENT);
        }
        let records: Out<nvmlGpmMetric_t> = request.behind();
        for position in 0..asked.count as usize {
            let record = records.at(position)?;
            let wanted = record.get()?;
            let (code, value) = match metric(context, one, other, wanted.metricId) {
                Ok(value) => (0, value),
                Err(Failure(code)) => (code, 0.0),
            };
            record.set(nvmlGpmMetric_t { nvmlReturn: code, value, ..wanted })?;
        }
        Ok(())
    }
}
