//! Taints of devices that are published, and that kube-scheduler allocates to no new claims.

use k8s_openapi::api::resource::v1::{Device, DeviceTaint};
use tessera_api::gpu_pool::Allocation;
use tessera_api::{limits, managed, taint};

use crate::machine::Health;

/// The taint of a card that does not work; `None` for one that does.
pub fn of_health(driver_name: &str, health: &Health) -> Option<DeviceTaint> {
    let value = match health {
        Health::Healthy => return None,
        Health::Unhealthy { reason } => {
            Some(reason.clone()).filter(|reason| !reason.is_empty() && limits::is_label_value(reason))
        }
        Health::Lost => Some(taint::LOST.to_owned()),
        Health::NotAnswering => Some(taint::NOT_ANSWERING.to_owned()),
    };
    Some(no_schedule(taint::key(driver_name, taint::UNHEALTHY), value))
}

/// The taint of a held device that the machine no longer offers.
pub fn not_offered(driver_name: &str) -> DeviceTaint {
    no_schedule(taint::key(driver_name, taint::NOT_OFFERED), None)
}

/// The taint of a card that the controller allocates; `None` for one that kube-scheduler does.
pub fn of_allocation(allocation: Allocation) -> Option<DeviceTaint> {
    match allocation {
        Allocation::Native | Allocation::Steered => None,
        Allocation::Managed => Some(no_schedule(managed::TAINT_KEY.to_owned(), None)),
    }
}

/// Gives `device` the taint of its card's `allocation`, or takes it away.
pub fn set_allocation(device: &mut Device, allocation: Allocation) {
    match of_allocation(allocation) {
        Some(taint) => add(device, taint),
        None => {
            let Some(taints) = &mut device.taints else { return };
            taints.retain(|taint| taint.key != managed::TAINT_KEY);
            if taints.is_empty() {
                device.taints = None;
            }
        }
    }
}

/// Adds the taint to `device`, unless it has it.
pub fn add(device: &mut Device, added: DeviceTaint) {
    let taints = device.taints.get_or_insert_default();
    if !taints.iter().any(|taint| (&taint.key, &taint.effect) == (&added.key, &added.effect)) {
        taints.truncate(limits::TAINTS_PER_DEVICE - 1);
        taints.push(added);
    }
}

fn no_schedule(key: String, value: Option<String>) -> DeviceTaint {
    DeviceTaint { key, value, effect: taint::EFFECT_NO_SCHEDULE.to_owned(), time_added: None }
}
