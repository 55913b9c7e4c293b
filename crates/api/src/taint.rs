//! Taints of published devices. The key's prefix is the driver name.

use crate::config::NVIDIA_DRIVER_NAME;
use crate::health::{HealthClass, HealthFault};

/// Name part of the key: the card, or the part of it that the device is, does not work. Its value says why:
/// [`HealthFault::name`].
pub const UNHEALTHY: &str = "unhealthy";

/// Value of [`UNHEALTHY`]: the card takes no new claims because a MIG layout waits for it.
pub const MIG_LAYOUT_PENDING: &str = "mig-layout-pending";

/// Name part of the key under NVIDIA's driver name, where a card has had an XID; the value is its number.
///
/// This and the next are `TaintKeyXID` and `TaintKeyGPULost` in `device_health.go` of NVIDIA's driver. Its third key,
/// `unmonitored`, is of devices for whose events it could not register; that is nothing that is told of a device here.
const XID: &str = "xid";

/// Name part of the key under NVIDIA's driver name, where a card is lost; without a value.
const GPU_LOST: &str = "gpu-lost";
/// Name part of the key: the device stays published only because a claim still holds it.
pub const NOT_OFFERED: &str = "not-offered";
/// The scheduler allocates the device to no new claim; pods that have it keep running.
pub const EFFECT_NO_SCHEDULE: &str = "NoSchedule";
/// As [`EFFECT_NO_SCHEDULE`], and Kubernetes evicts the pods that have the device and do not tolerate the taint.
pub const EFFECT_NO_EXECUTE: &str = "NoExecute";

/// The full key of a taint of this driver.
#[must_use]
pub fn key(driver_name: &str, name: &str) -> String {
    format!("{driver_name}/{name}")
}

/// Key and value of a fault's taint. Under NVIDIA's driver name those that its driver has are as there, so that tolerations
/// written for it match.
#[must_use]
pub fn of_fault(driver_name: &str, fault: &HealthFault) -> (String, Option<String>) {
    let (name, value) = match (fault.class, fault.xid) {
        (HealthClass::Xid, Some(xid)) if driver_name == NVIDIA_DRIVER_NAME => (XID, Some(xid.to_string())),
        (HealthClass::Lost, _) if driver_name == NVIDIA_DRIVER_NAME => (GPU_LOST, None),
        _ => (UNHEALTHY, Some(fault.name())),
    };
    (key(driver_name, name), value)
}

/// What a taint with this key and value says is wrong with its device, as [`HealthFault::name`] does; `None` for a taint
/// that says something else.
#[must_use]
pub fn fault_name(driver_name: &str, taint_key: &str, value: Option<&str>) -> Option<String> {
    let value = value.unwrap_or_default();
    match taint_key.strip_prefix(driver_name)?.strip_prefix('/')? {
        UNHEALTHY if value.is_empty() => Some(UNHEALTHY.to_owned()),
        UNHEALTHY => Some(value.to_owned()),
        XID => Some(format!("xid-{value}")),
        GPU_LOST => Some(HealthClass::Lost.name().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_in_the_words_of_the_drivers_name_and_read_again() {
        let faults = [
            HealthFault::xid(79, None),
            HealthFault::new(HealthClass::Lost),
            HealthFault::new(HealthClass::NotAnswering),
        ];
        let taints = |driver: &str| {
            faults.clone().map(|fault| {
                let (key, value) = of_fault(driver, &fault);
                assert_eq!(fault_name(driver, &key, value.as_deref()), Some(fault.name()));
                format!("{key}={}", value.unwrap_or_default())
            })
        };
        assert_eq!(
            taints("gpu.tessera.dev"),
            [
                "gpu.tessera.dev/unhealthy=xid-79",
                "gpu.tessera.dev/unhealthy=lost",
                "gpu.tessera.dev/unhealthy=not-answering"
            ]
        );
        assert_eq!(
            taints(NVIDIA_DRIVER_NAME),
            ["gpu.nvidia.com/xid=79", "gpu.nvidia.com/gpu-lost=", "gpu.nvidia.com/unhealthy=not-answering"]
        );
        for other in ["gpu.nvidia.com/not-offered", "other.example.com/xid", "gpu.nvidia.comx/xid"] {
            assert_eq!(fault_name(NVIDIA_DRIVER_NAME, other, None), None, "{other}");
        }
    }
}
