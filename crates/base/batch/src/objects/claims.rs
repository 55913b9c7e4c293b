//! The claim of each pod.

use k8s_openapi::api::resource::v1::{
    CELDeviceSelector, DeviceClaim, DeviceRequest, DeviceSelector, ExactDeviceRequest, ResourceClaimSpec,
    ResourceClaimTemplate, ResourceClaimTemplateSpec,
};
use tessera_api::attribute::{GPU_POOL, PRODUCT_NAME, PROFILE};
use tessera_api::config::NVIDIA_DRIVER_NAME;

use crate::gres::Device;
use crate::job::Job;

/// Name of the claim in the pod.
pub const CLAIM: &str = "gpus";

/// The template; `None` without GPUs.
pub fn template(job: &Job) -> Option<ResourceClaimTemplate> {
    let mut requests: Vec<DeviceRequest> = Vec::new();
    if job.all_cards {
        let all = ExactDeviceRequest {
            allocation_mode: Some("All".to_owned()),
            ..request(job, &Device::Card { model: Vec::new() })
        };
        requests.push(DeviceRequest {
            name: "gpu".to_owned(),
            exactly: Some(all),
            ..DeviceRequest::default()
        });
    }
    for (index, amount) in job.gpus.iter().enumerate() {
        let name = if index == 0 { "gpu".to_owned() } else { format!("gpu-{index}") };
        let exactly = ExactDeviceRequest { count: Some(amount.count.into()), ..request(job, &amount.device) };
        requests.push(DeviceRequest { name, exactly: Some(exactly), ..DeviceRequest::default() });
    }
    if requests.is_empty() {
        return None;
    }
    let devices = DeviceClaim { requests: Some(requests), ..DeviceClaim::default() };
    let spec = ResourceClaimSpec { devices: Some(devices) };
    Some(ResourceClaimTemplate {
        metadata: super::metadata(job),
        spec: Some(ResourceClaimTemplateSpec { spec: Some(spec), ..ResourceClaimTemplateSpec::default() }),
    })
}

fn request(job: &Job, device: &Device) -> ExactDeviceRequest {
    let driver = &job.driver;
    let class = match device {
        Device::Card { .. } => driver.clone(),
        Device::Partition { .. } if driver == NVIDIA_DRIVER_NAME => "mig.nvidia.com".to_owned(),
        Device::Partition { .. } => format!("mig.{driver}"),
        Device::Share => format!("mps.{driver}"),
    };
    let mut parts = Vec::new();
    match device {
        Device::Card { model } => parts.extend(is_model(driver, model)),
        Device::Partition { profile, model } => {
            parts.push(format!("{} == {profile:?}", attribute(driver, PROFILE)));
            parts.extend(is_model(driver, model));
        }
        // The class has shares of partitions, too.
        Device::Share => parts.push(format!("!({PROFILE:?} in device.attributes[{driver:?}])")),
    }
    if !job.models.is_empty() {
        let models: Vec<String> = job.models.iter().filter_map(|model| is_model(driver, model)).collect();
        parts.push(match models.as_slice() {
            [model] => model.clone(),
            _ => format!("({})", models.join(" || ")),
        });
    }
    match job.pools.as_slice() {
        [] => {}
        [pool] => parts.push(format!("{} == {pool:?}", attribute(driver, GPU_POOL))),
        pools => parts.push(format!("{} in {pools:?}", attribute(driver, GPU_POOL))),
    }
    let selector = DeviceSelector { cel: Some(CELDeviceSelector { expression: parts.join(" && ") }) };
    ExactDeviceRequest {
        device_class_name: class,
        selectors: (!parts.is_empty()).then(|| vec![selector]),
        ..ExactDeviceRequest::default()
    }
}

/// A missing attribute reads as empty: an error in a selector fails the scheduling of every pod.
fn attribute(driver: &str, name: &str) -> String {
    format!("device.attributes[{driver:?}].?{name}.orValue(\"\")")
}

/// Whether the product name has all words: `a10` is none of `NVIDIA A100-SXM4-80GB`. `None` without words.
///
/// Not by [`attribute`]: for the API server the text from `orValue` has no longest length, and a regular expression on it is too complex.
fn is_model(driver: &str, words: &[String]) -> Option<String> {
    if words.is_empty() {
        return None;
    }
    let attributes = format!("device.attributes[{driver:?}]");
    let is_named = format!("{PRODUCT_NAME:?} in {attributes}");
    let has_word = |word: &String| {
        format!("{attributes}.{PRODUCT_NAME}.lowerAscii().matches(\"(^|[^a-z0-9]){word}([^a-z0-9]|$)\")")
    };
    let parts: Vec<String> = [is_named].into_iter().chain(words.iter().map(has_word)).collect();
    Some(parts.join(" && "))
}
