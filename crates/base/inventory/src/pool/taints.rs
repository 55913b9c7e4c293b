//! Taints of published devices, to keep kube-scheduler from allocating them to new claims.

use k8s_openapi::api::resource::v1::{Device, DeviceTaint};
use tessera_api::gpu_pool::Allocation;
use tessera_api::health::{HealthFault, HealthPolicy};
use tessera_api::{DeviceName, limits, managed, taint};

use super::PoolOptions;
use crate::machine::{Card, Health, Placement};

/// The taints of a card's faults, each with the affected fault; `None` is for all of the card.
pub struct HealthTaints(Vec<(Option<HealthFault>, DeviceTaint)>);

impl HealthTaints {
    /// The taints of `card`, by `policy`.
    pub fn new(driver_name: &str, card: &Card, policy: &HealthPolicy) -> Self {
        let of_fault =
            |fault: HealthFault| of_fault(driver_name, &fault, policy).map(|taint| (Some(fault), taint));
        let not_offered = match &card.health {
            Health::Unhealthy { reason } => {
                let value =
                    Some(reason.clone()).filter(|text| !text.is_empty() && limits::is_label_value(text));
                Some((None, no_schedule(taint::key(driver_name, taint::UNHEALTHY), value)))
            }
            Health::Healthy | Health::Lost | Health::NotAnswering => None,
        };
        Self(not_offered.into_iter().chain(card.all_faults().filter_map(of_fault)).collect())
    }

    /// The taints of a device in these memory slices of the card, or in all of the card.
    pub fn of_device(&self, slices: Option<Placement>) -> impl Iterator<Item = DeviceTaint> + '_ {
        let concerned =
            self.0.iter().filter(move |(fault, _)| fault.as_ref().is_none_or(|fault| fault.concerns(slices)));
        concerned.map(|(_, taint)| taint.clone())
    }
}

/// The taint of a fault; `None` for a fault without effect on claims.
pub fn of_fault(driver_name: &str, fault: &HealthFault, policy: &HealthPolicy) -> Option<DeviceTaint> {
    let effect = policy.effect(fault).taint_effect()?;
    let (key, value) = taint::of_fault(driver_name, fault);
    Some(DeviceTaint { key, value, effect: effect.to_owned(), time_added: None })
}

/// The taint of a held device no longer offered in its allocated form.
pub fn not_offered(driver_name: &str) -> DeviceTaint {
    no_schedule(taint::key(driver_name, taint::NOT_OFFERED), None)
}

/// The taint of a card allocated by the controller; `None` for a card allocated by kube-scheduler.
pub fn of_allocation(allocation: Allocation) -> Option<DeviceTaint> {
    match allocation {
        Allocation::Native | Allocation::Steered => None,
        Allocation::Managed => Some(no_schedule(managed::TAINT_KEY.to_owned(), None)),
    }
}

/// Sets or removes the taint for the `allocation` of the device's card.
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

/// Replaces the health taints of a device no longer offered with those of its card's current
/// faults.
pub fn set_health(device: &mut Device, name: &DeviceName, card: &Card, options: &PoolOptions) {
    let mut taints = device.taints.take().unwrap_or_default();
    taints.retain(|taint| taint::fault_name(&options.driver_name, &taint.key, None).is_none());
    let health = HealthTaints::new(&options.driver_name, card, &options.health);
    taints.extend(health.of_device(card.slices_of(name)));
    taints.truncate(limits::TAINTS_PER_DEVICE);
    device.taints = (!taints.is_empty()).then_some(taints);
}

/// Adds the taint to `device`, unless already present.
pub fn add(device: &mut Device, added: DeviceTaint) {
    let taints = device.taints.get_or_insert_default();
    let same = |taint: &DeviceTaint| {
        (&taint.key, &taint.value, &taint.effect) == (&added.key, &added.value, &added.effect)
    };
    if !taints.iter().any(same) {
        taints.truncate(limits::TAINTS_PER_DEVICE - 1);
        taints.push(added);
    }
}

fn no_schedule(key: String, value: Option<String>) -> DeviceTaint {
    DeviceTaint { key, value, effect: taint::EFFECT_NO_SCHEDULE.to_owned(), time_added: None }
}
