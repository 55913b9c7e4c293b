//! Confidential computing, common to all cards of a machine.

use nvml_wrapper_sys::bindings::{
    NVML_CC_ACCEPTING_CLIENT_REQUESTS_FALSE, NVML_CC_ACCEPTING_CLIENT_REQUESTS_TRUE,
    NVML_CC_SYSTEM_DEVTOOLS_MODE_OFF, NVML_CC_SYSTEM_ENVIRONMENT_PROD, NVML_CC_SYSTEM_FEATURE_ENABLED,
    nvmlConfComputeSystemState_t,
};

use super::call::nvml_functions;
use super::context::Context;
use super::ffi::Out;
use crate::failure::Failure;
use crate::state::ConfCompute;

/// The mode, on machines in it.
fn mode(context: &Context) -> Result<ConfCompute, Failure> {
    match context.state().conf_compute {
        ConfCompute::Off => Err(Failure::NOT_SUPPORTED),
        mode => Ok(mode),
    }
}

nvml_functions! {
    /// `nvmlSystemGetConfComputeState`
    fn nvmlSystemGetConfComputeState(context: &Context, state: Out<nvmlConfComputeSystemState_t>) {
        mode(context)?;
        state.set(nvmlConfComputeSystemState_t {
            environment: NVML_CC_SYSTEM_ENVIRONMENT_PROD,
            ccFeature: NVML_CC_SYSTEM_FEATURE_ENABLED,
            devToolsMode: NVML_CC_SYSTEM_DEVTOOLS_MODE_OFF,
        })
    }

    /// `nvmlSystemGetConfComputeGpusReadyState`
    fn nvmlSystemGetConfComputeGpusReadyState(context: &Context, accepts_work: Out<u32>) {
        accepts_work.set(match mode(context)? {
            ConfCompute::Ready => NVML_CC_ACCEPTING_CLIENT_REQUESTS_TRUE,
            ConfCompute::NotReady | ConfCompute::Off => NVML_CC_ACCEPTING_CLIENT_REQUESTS_FALSE,
        })
    }

    /// `nvmlSystemSetConfComputeGpusReadyState`
    fn nvmlSystemSetConfComputeGpusReadyState(context: &Context, accepts_work: u32) {
        mode(context)?;
        let ready = match accepts_work {
            NVML_CC_ACCEPTING_CLIENT_REQUESTS_FALSE => ConfCompute::NotReady,
            NVML_CC_ACCEPTING_CLIENT_REQUESTS_TRUE => ConfCompute::Ready,
            _ => return Err(Failure::INVALID_ARGUMENT),
        };
        context.update(|state| state.conf_compute = ready)
    }
}
