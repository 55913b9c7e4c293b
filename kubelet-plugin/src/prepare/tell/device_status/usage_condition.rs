//! Conditions of a claim's devices about their use. Each type has its own field manager, other than that of the preparation's entries,
//! so that none takes away another's.

use super::entries::{Key, results};
use super::writer::apply;
use crate::prepare::claim::{Found, api};
use crate::prepare::{ClaimReference, PrepareError, PrepareOptions};
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tessera_api::device_status;

/// How the pods of a claim use its devices.
#[derive(Clone, Debug)]
pub struct UsageCondition {
    /// Type of the condition.
    pub kind: UsageConditionKind,
    /// Names of the devices.
    pub devices: Vec<String>,
    /// Whether the condition holds.
    pub is_true: bool,
    /// Reason of the condition.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
}

/// Types of conditions about use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageConditionKind {
    /// [`tessera_api::device_status::IDLE`].
    Idle,
    /// [`tessera_api::device_status::MEMORY_OVERUSE`].
    MemoryOveruse,
}

impl UsageConditionKind {
    fn name(self) -> &'static str {
        match self {
            Self::Idle => device_status::IDLE,
            Self::MemoryOveruse => device_status::MEMORY_OVERUSE,
        }
    }

    /// Last part of the field manager's name.
    fn manager(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::MemoryOveruse => "overuse",
        }
    }
}

/// Writes the condition, unless the claim says so already, or is gone. A claim of which it never was true gets none.
///
/// # Errors
/// [`PrepareError::Api`].
pub(in crate::prepare) async fn write(
    client: &Client,
    options: &PrepareOptions,
    claim: &ClaimReference,
    condition: &UsageCondition,
) -> Result<(), PrepareError> {
    let Found::Claim(found) = api::get(client, claim, options.patience).await? else { return Ok(()) };
    let Some(entries) = entries(&found, &options.driver_name, condition) else { return Ok(()) };
    let manager = format!("{}/kubelet-plugin-{}", options.driver_name, condition.kind.manager());
    let applied = apply(client, &manager, options.patience, claim, &found, &entries).await;
    applied.map_err(|error| PrepareError::Api {
        claim: claim.to_string(),
        reason: error.reason,
        may_pass: error.may_pass,
    })
}

/// The entries; `None` if nothing is to be said.
fn entries(
    claim: &ResourceClaim,
    driver: &str,
    condition: &UsageCondition,
) -> Option<Vec<AllocatedDeviceStatus>> {
    let told = |key: &Key| {
        let devices = claim.status.as_ref()?.devices.as_ref()?;
        let entry = devices.iter().find(|entry| {
            (&*entry.driver, &entry.pool, &entry.device, &entry.share_id)
                == (driver, &key.pool, &key.device, &key.share_id)
        })?;
        entry.conditions.as_ref()?.iter().find(|told| told.type_ == condition.kind.name())
    };
    let status = if condition.is_true { "True" } else { "False" };
    let results = results(claim, driver).filter(|result| condition.devices.contains(&result.device));
    let keys: Vec<Key> = results.map(Key::of).collect();
    let is_told = |key: &Key| match told(key) {
        // A verdict that was never written may lie between two that are alike but for reason and time.
        Some(told) => {
            told.status == status
                && (!condition.is_true
                    || (told.reason == condition.reason && told.last_transition_time.0 == condition.since))
        }
        None => !condition.is_true,
    };
    if keys.iter().all(is_told) {
        return None;
    }
    let entry = |key: Key| AllocatedDeviceStatus {
        driver: driver.to_owned(),
        pool: key.pool,
        device: key.device,
        share_id: key.share_id,
        conditions: Some(vec![Condition {
            type_: condition.kind.name().to_owned(),
            status: status.to_owned(),
            reason: condition.reason.to_owned(),
            message: condition.message.clone(),
            last_transition_time: Time(condition.since),
            observed_generation: None,
        }]),
        ..AllocatedDeviceStatus::default()
    };
    Some(keys.into_iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DRIVER: &str = "gpu.tessera.dev";

    fn claim(devices: &Value) -> ResourceClaim {
        let result = |driver: &str, device: &str| json!({"request": "r", "driver": driver, "pool": "p", "device": device});
        let results = [
            result(DRIVER, "gpu-01-00"),
            result(DRIVER, "gpu-02-00"),
            result("nic.example.com", "gpu-01-00"),
        ];
        let status = json!({"allocation": {"devices": {"results": results}}, "devices": devices});
        serde_json::from_value(json!({"spec": {}, "status": status})).unwrap()
    }

    fn condition(is_true: bool) -> UsageCondition {
        UsageCondition {
            kind: UsageConditionKind::Idle,
            devices: vec!["gpu-01-00".to_owned(), "gpu-02-00".to_owned()],
            is_true,
            reason: "Reason",
            message: "message".to_owned(),
            since: Timestamp::from_second(1).unwrap(),
        }
    }

    #[test]
    fn the_condition_is_written_at_changes_only() {
        let never_idle = claim(&json!([]));
        assert!(entries(&never_idle, DRIVER, &condition(false)).is_none());
        let told = entries(&never_idle, DRIVER, &condition(true)).unwrap();
        assert_eq!(told.iter().map(|entry| &*entry.device).collect::<Vec<_>>(), ["gpu-01-00", "gpu-02-00"]);
        let idle = claim(&serde_json::to_value(told).unwrap());
        assert!(entries(&idle, DRIVER, &condition(true)).is_none());
        let another = UsageCondition { reason: "Another", ..condition(true) };
        assert!(entries(&idle, DRIVER, &another).is_some());
        let told = entries(&idle, DRIVER, &condition(false)).unwrap();
        assert_eq!(told[0].conditions.as_ref().unwrap()[0].status, "False");
        let used = claim(&serde_json::to_value(told).unwrap());
        assert!(entries(&used, DRIVER, &condition(false)).is_none());
        assert!(entries(&used, DRIVER, &condition(true)).is_some());
    }

    #[test]
    fn each_type_of_condition_is_told_for_itself() {
        let idle =
            claim(&serde_json::to_value(entries(&claim(&json!([])), DRIVER, &condition(true))).unwrap());
        let overuse = UsageCondition { kind: UsageConditionKind::MemoryOveruse, ..condition(true) };
        let told = entries(&idle, DRIVER, &overuse).unwrap();
        assert_eq!(told[0].conditions.as_ref().unwrap()[0].type_, "MemoryOveruse");
    }

    #[test]
    fn the_condition_of_a_former_allocation_is_not_written() {
        let moved = UsageCondition { devices: vec!["gpu-03-00".to_owned()], ..condition(true) };
        assert!(entries(&claim(&json!([])), DRIVER, &moved).is_none());
    }
}
