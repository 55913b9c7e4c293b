//! How busy a card is.

use nvml_wrapper_sys::bindings::{nvmlFBCStats_t, nvmlProcessUtilizationSample_t, nvmlUtilization_t};

use super::call::nvml_functions;
use super::ffi::Out;
use crate::failure::Failure;
use crate::state::meter::now;

/// Time over which the driver samples, µs. NVML documents between 1/6 and 1 second.
const SAMPLING_PERIOD: u32 = 167_000;

fn idle_engine(utilization: Out<u32>, period: Out<u32>) -> Result<(), Failure> {
    if period.is_null() {
        return Err(Failure::INVALID_ARGUMENT);
    }
    utilization.set(0)?;
    period.set(SAMPLING_PERIOD)
}

nvml_functions! {
    /// `nvmlDeviceGetUtilizationRates`
    fn nvmlDeviceGetUtilizationRates(view: CardView, rates: Out<nvmlUtilization_t>) {
        if view.state.mig.enabled {
            return Err(Failure::NOT_SUPPORTED);
        }
        rates.set(nvmlUtilization_t { gpu: view.state.busy_percent(), memory: view.state.utilization_memory })
    }

    /// `nvmlDeviceGetEncoderUtilization`
    fn nvmlDeviceGetEncoderUtilization(_view: CardView, utilization: Out<u32>, period: Out<u32>) {
        idle_engine(utilization, period)
    }

    /// `nvmlDeviceGetDecoderUtilization`
    fn nvmlDeviceGetDecoderUtilization(_view: CardView, utilization: Out<u32>, period: Out<u32>) {
        idle_engine(utilization, period)
    }

    /// `nvmlDeviceGetJpgUtilization`
    fn nvmlDeviceGetJpgUtilization(_view: CardView, utilization: Out<u32>, period: Out<u32>) {
        idle_engine(utilization, period)
    }

    /// `nvmlDeviceGetOfaUtilization`
    fn nvmlDeviceGetOfaUtilization(_view: CardView, utilization: Out<u32>, period: Out<u32>) {
        idle_engine(utilization, period)
    }

    /// `nvmlDeviceGetEncoderStats`
    fn nvmlDeviceGetEncoderStats(_view: CardView, sessions: Out<u32>, frames: Out<u32>, latency: Out<u32>) {
        for value in [sessions, frames, latency] {
            value.set(0)?;
        }
        Ok(())
    }

    /// `nvmlDeviceGetEncoderSessions`
    fn nvmlDeviceGetEncoderSessions(_view: CardView, count: Out<u32>, _sessions: Out<u32>) {
        count.set(0)
    }

    /// `nvmlDeviceGetFBCStats`
    fn nvmlDeviceGetFBCStats(_view: CardView, stats: Out<nvmlFBCStats_t>) {
        stats.set(nvmlFBCStats_t { sessionsCount: 0, averageFPS: 0, averageLatency: 0 })
    }

    /// `nvmlDeviceGetFBCSessions`
    fn nvmlDeviceGetFBCSessions(_view: CardView, count: Out<u32>, _sessions: Out<u32>) {
        count.set(0)
    }

    /// `nvmlDeviceGetProcessUtilization`: each process's own value; if no process has one, the card's utilization,
    /// divided evenly.
    fn nvmlDeviceGetProcessUtilization(
        view: CardView,
        samples: Out<nvmlProcessUtilizationSample_t>,
        count: Out<u32>,
        _last_seen: u64,
    ) {
        if view.state.mig.enabled {
            return Err(Failure::NOT_SUPPORTED);
        }
        let processes = &view.state.processes;
        if processes.is_empty() {
            count.set(0)?;
            return Err(Failure::NOT_FOUND);
        }
        let share = |percent: u32| percent / processes.len() as u32;
        let is_said = processes.iter().any(|process| process.busy_percent > 0);
        let time = now();
        let found: Vec<nvmlProcessUtilizationSample_t> = processes
            .iter()
            .map(|process| nvmlProcessUtilizationSample_t {
                pid: process.pid,
                timeStamp: time,
                smUtil: if is_said { process.busy_percent } else { share(view.state.utilization_gpu) },
                memUtil: share(view.state.utilization_memory),
                encUtil: 0,
                decUtil: 0,
            })
            .collect();
        samples.set_list(count, &found)
    }
}
