//! Whole cards and partitions held by several claims at once, as published by NVIDIA's driver with its feature
//! `ConsumableShares` (`cmd/gpu-kubelet-plugin/consumable_shares.go`, as of f49e778e).

use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceCapacity,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use tessera_api::offer::{ConsumableShares, ConsumableSharesMode};
use tessera_api::{Quantity, capacity};

/// The smallest amount of memory in a claim's request where memory limits the claims.
const LEAST_MEMORY: Quantity = Quantity::binary(1 << 20);

/// Makes an exclusive device shareable by several claims.
pub fn shared(mut device: Device, how: ConsumableShares) -> Device {
    let mut capacities = device.capacity.take().unwrap_or_default();
    for (name, capacity) in capacities.iter_mut() {
        // Of a capacity without a policy the first claim would consume everything. With steps there would be something to
        // round up, which kube-scheduler does wrong near 2^63.
        let is_enough = Quantity::parse(&capacity.value.0).is_ok_and(|value| value >= LEAST_MEMORY);
        let limits = how.mode == ConsumableSharesMode::Memory && name == capacity::MEMORY && is_enough;
        let (default, least) = match limits {
            true => (capacity.value.clone(), text(LEAST_MEMORY)),
            false => (text(Quantity::decimal(0)), text(Quantity::decimal(0))),
        };
        capacity.request_policy = Some(policy(default, least, None));
    }
    if let Some(shares) = how.shares {
        let one = || text(Quantity::decimal(1));
        let shares = DeviceCapacity {
            value: text(Quantity::decimal(shares.into())),
            request_policy: Some(policy(one(), one(), Some(one()))),
        };
        capacities.insert(capacity::SHARES.to_owned(), shares);
    }
    device.capacity = (!capacities.is_empty()).then_some(capacities);
    device.allow_multiple_allocations = Some(true);
    device
}

fn policy(default: QuantityText, min: QuantityText, step: Option<QuantityText>) -> CapacityRequestPolicy {
    CapacityRequestPolicy {
        default: Some(default),
        valid_range: Some(CapacityRequestPolicyRange { min, max: None, step }),
        valid_values: None,
    }
}

fn text(quantity: Quantity) -> QuantityText {
    QuantityText(quantity.to_string())
}
