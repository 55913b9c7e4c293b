//! The API server's defaults for claims: objects from files lack them.

use k8s_openapi::api::resource::v1::{DeviceToleration, ResourceClaimSpec};

/// Fills in the API server's defaults: mode `ExactCount`, count 1, operator `Equal`.
pub fn claim(spec: Option<&mut ResourceClaimSpec>) {
    let devices = spec.and_then(|spec| spec.devices.as_mut());
    for request in devices.into_iter().flat_map(|devices| devices.requests.iter_mut().flatten()) {
        if let Some(exactly) = &mut request.exactly {
            mode_and_count(&mut exactly.allocation_mode, &mut exactly.count);
            operators(exactly.tolerations.as_mut());
        }
        for alternative in request.first_available.iter_mut().flatten() {
            mode_and_count(&mut alternative.allocation_mode, &mut alternative.count);
            operators(alternative.tolerations.as_mut());
        }
    }
}

fn mode_and_count(mode: &mut Option<String>, count: &mut Option<i64>) {
    let mode = mode.get_or_insert_with(|| "ExactCount".to_owned());
    if mode == "ExactCount" && count.unwrap_or(0) == 0 {
        *count = Some(1);
    }
}

fn operators(tolerations: Option<&mut Vec<DeviceToleration>>) {
    for toleration in tolerations.into_iter().flatten() {
        toleration.operator.get_or_insert_with(|| "Equal".to_owned());
    }
}
