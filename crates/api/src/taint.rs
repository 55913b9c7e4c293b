//! Taints of published devices. The key's prefix is the driver name.

/// Name part of the key: the card, or the part of it that the device is, does not work. Its value says why:
/// [`HealthFault::name`](crate::health::HealthFault::name).
pub const UNHEALTHY: &str = "unhealthy";
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
