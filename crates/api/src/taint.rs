//! Taints of published devices. The key's prefix is the driver name.

/// Name part of the key: the card does not work. Its value says why: [`LOST`], [`NOT_ANSWERING`] or what the health
/// watch found.
pub const UNHEALTHY: &str = "unhealthy";
/// Name part of the key: the device stays published only because a claim still holds it.
pub const NOT_OFFERED: &str = "not-offered";
/// Value of [`UNHEALTHY`] for a card that fell off the bus.
pub const LOST: &str = "lost";
/// Value of [`UNHEALTHY`] for a card about which a call of the driver hangs.
pub const NOT_ANSWERING: &str = "not-answering";
/// The scheduler allocates the device to no new claim; pods that have it keep running.
pub const EFFECT_NO_SCHEDULE: &str = "NoSchedule";

/// The full key of a taint of this driver.
#[must_use]
pub fn key(driver_name: &str, name: &str) -> String {
    format!("{driver_name}/{name}")
}
