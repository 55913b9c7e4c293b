//! Taints of devices that are published but not allocated to new claims.

use k8s_openapi::api::resource::v1::DeviceTaint;
use tessera_api::{limits, taint};

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
    Some(no_schedule(driver_name, taint::UNHEALTHY, value))
}

/// The taint of a held device that the machine no longer offers.
pub fn not_offered(driver_name: &str) -> DeviceTaint {
    no_schedule(driver_name, taint::NOT_OFFERED, None)
}

fn no_schedule(driver_name: &str, name: &str, value: Option<String>) -> DeviceTaint {
    DeviceTaint {
        key: taint::key(driver_name, name),
        value,
        effect: taint::EFFECT_NO_SCHEDULE.to_owned(),
        time_added: None,
    }
}
