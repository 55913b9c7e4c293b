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
        Device::Card { model } => parts.extend(model.iter().map(|word| has_word(driver, word))),
        Device::Partition { profile, model } => {
            parts.push(format!("{} == {profile:?}", attribute(driver, PROFILE)));
            parts.extend(model.iter().map(|word| has_word(driver, word)));
        }
        // The class has shares of partitions, too.
        Device::Share => parts.push(format!("!({PROFILE:?} in device.attributes[{driver:?}])")),
    }
    if !job.models.is_empty() {
        let models = job.models.iter().map(|model| {
            let words: Vec<String> = model.iter().map(|word| has_word(driver, word)).collect();
            words.join(" && ")
        });
        let models: Vec<String> = models.collect();
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

/// Whether the product name has the word: `a10` is none of `NVIDIA A100-SXM4-80GB`.
fn has_word(driver: &str, word: &str) -> String {
    let name = attribute(driver, PRODUCT_NAME);
    format!("{name}.lowerAscii().matches(\"(^|[^a-z0-9]){word}([^a-z0-9]|$)\")")
}
