//! Taints of published devices. The key's prefix is the driver name.

use crate::config::NVIDIA_DRIVER_NAME;
use crate::health::{HealthClass, HealthFault};

/// Name part of the key: the card or the device's part of the card does not work. The value is the reason:
/// [`HealthFault::name`].
pub const UNHEALTHY: &str = "unhealthy";

/// Value of [`UNHEALTHY`]: the card takes no new claims because a MIG layout is pending.
pub const MIG_LAYOUT_PENDING: &str = "mig-layout-pending";

/// Name part of the key under NVIDIA's driver name, where a card has had an XID; the value is its number.
///
/// This and the next key are `TaintKeyXID` and `TaintKeyGPULost` in `device_health.go` of NVIDIA's driver. Its third key,
/// `unmonitored`, marks devices for whose events the driver could not register; no such condition is reported here.
const XID: &str = "xid";

/// Name part of the key under NVIDIA's driver name, where a card is lost; without a value.
const GPU_LOST: &str = "gpu-lost";
/// Name part of the key: the device stays published only because a claim still holds it.
pub const NOT_OFFERED: &str = "not-offered";
/// The scheduler allocates the device to no new claim; pods using the device keep running.
pub const EFFECT_NO_SCHEDULE: &str = "NoSchedule";
/// As [`EFFECT_NO_SCHEDULE`], and Kubernetes evicts the pods using the device without tolerating the taint.
pub const EFFECT_NO_EXECUTE: &str = "NoExecute";

/// The full key of a taint of this driver.
#[must_use]
pub fn key(driver_name: &str, name: &str) -> String {
    format!("{driver_name}/{name}")
}

/// Key and value of a fault's taint. Under NVIDIA's driver name the keys of NVIDIA's own driver are used, so that tolerations
/// written for NVIDIA's driver match.
#[must_use]
pub fn of_fault(driver_name: &str, fault: &HealthFault) -> (String, Option<String>) {
    let (name, value) = match (fault.class, fault.xid) {
        (HealthClass::Xid, Some(xid)) if driver_name == NVIDIA_DRIVER_NAME => (XID, Some(xid.to_string())),
        (HealthClass::Lost, _) if driver_name == NVIDIA_DRIVER_NAME => (GPU_LOST, None),
        _ => (UNHEALTHY, Some(fault.name())),
    };
    (key(driver_name, name), value)
}

/// The fault named by a taint with this key and value, in the words of [`HealthFault::name`]; `None` for a taint
/// with another meaning.
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
