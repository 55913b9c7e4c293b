//! The entries for a claim's `status.devices`. Pure.

use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use tessera_api::DeviceName;
use tessera_api::device_status::{PREPARED, READY};

use crate::prepare::error::About;

const TRUE: &str = "True";
const FALSE: &str = "False";

/// An allocated device of this driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) pool: String,
    pub(super) device: String,
    pub(super) share_id: Option<String>,
}

/// Outcome of preparing a claim.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// The claim is prepared.
    Prepared,
    /// These devices cannot be prepared.
    Failed {
        /// The devices.
        devices: Vec<Key>,
        /// Reason of the condition.
        reason: String,
        /// Its message.
        message: String,
    },
}

/// The driver's results affected by an error.
pub(super) fn devices(claim: &ResourceClaim, driver: &str, about: About<'_>) -> Vec<Key> {
    let results: Vec<&DeviceRequestAllocationResult> = results(claim, driver).collect();
    let of = |is_meant: &dyn Fn(&DeviceRequestAllocationResult) -> bool| -> Vec<Key> {
        results.iter().filter(|result| is_meant(result)).map(|result| Key::of(result)).collect()
    };
    match about {
        About::Device(name) => {
            let named = of(&|result| result.device == name);
            if !named.is_empty() {
                return named;
            }
            // A record of hardware: the card's mode, a partition of another claim.
            let of_card = of(&|result| {
                let card =
                    result.device.parse::<DeviceName>().ok().map(|device| DeviceName::Card(device.card()));
                card.is_some_and(|card| name.starts_with(&card.to_string()))
            });
            if of_card.is_empty() { of(&|_| true) } else { of_card }
        }
        About::Request(request) => of(&|result| result.request == request),
        About::UnknownNames => of(&|result| result.device.parse::<DeviceName>().is_err()),
        About::All => of(&|_| true),
    }
}

/// Whether the claim's status shows a failed device of the driver.
pub(super) fn says_failed(claim: &ResourceClaim, driver: &str) -> bool {
    told(claim, driver).any(|(_, condition)| condition.status == FALSE)
}

/// The driver's wanted entries; `None` if already present, or if there is nothing to report.
pub(super) fn entries(
    claim: &ResourceClaim,
    driver: &str,
    outcome: &Outcome,
    now: Time,
) -> Option<Vec<AllocatedDeviceStatus>> {
    let told: Vec<(Key, &Condition)> = told(claim, driver).collect();
    let wanted: Vec<(Key, Condition)> = match outcome {
        Outcome::Failed { devices, reason, message } => {
            let failed = told.iter().filter(|(_, condition)| condition.status == FALSE);
            let since = failed.map(|(_, condition)| &condition.last_transition_time).min().unwrap_or(&now);
            let condition = || condition(FALSE, reason, message, since.clone());
            let is_allocated = |key: &&Key| results(claim, driver).any(|result| Key::of(result) == **key);
            devices.iter().filter(is_allocated).map(|key| (key.clone(), condition())).collect()
        }
        Outcome::Prepared => {
            let prepared = |known: &Condition| match known.status == FALSE {
                true => condition(TRUE, PREPARED, "the claim is prepared", now.clone()),
                false => known.clone(),
            };
            told.iter().map(|(key, known)| (key.clone(), prepared(known))).collect()
        }
    };
    let is_told = |(key, condition): &(Key, Condition)| {
        told.iter().any(|(known, told)| known == key && is_same(told, condition))
    };
    if wanted.is_empty() || (wanted.len() == told.len() && wanted.iter().all(is_told)) {
        return None;
    }
    let entry = |(key, condition): (Key, Condition)| AllocatedDeviceStatus {
        driver: driver.to_owned(),
        pool: key.pool,
        device: key.device,
        share_id: key.share_id,
        conditions: Some(vec![condition]),
        ..AllocatedDeviceStatus::default()
    };
    Some(wanted.into_iter().map(entry).collect())
}

impl Key {
    pub(super) fn of(result: &DeviceRequestAllocationResult) -> Self {
        let DeviceRequestAllocationResult { pool, device, share_id, .. } = result;
        Self { pool: pool.clone(), device: device.clone(), share_id: share_id.clone() }
    }
}

pub(super) fn results<'a>(
    claim: &'a ResourceClaim,
    driver: &'a str,
) -> impl Iterator<Item = &'a DeviceRequestAllocationResult> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
    results.into_iter().flatten().filter(move |result| result.driver == driver)
}

/// The driver's devices with a readiness condition.
fn told<'a>(claim: &'a ResourceClaim, driver: &'a str) -> impl Iterator<Item = (Key, &'a Condition)> {
    let devices = claim.status.as_ref().and_then(|status| status.devices.as_ref());
    devices.into_iter().flatten().filter(move |entry| entry.driver == driver).filter_map(|entry| {
        let condition = entry.conditions.iter().flatten().find(|condition| condition.type_ == READY)?;
        let (pool, device) = (entry.pool.clone(), entry.device.clone());
        Some((Key { pool, device, share_id: entry.share_id.clone() }, condition))
    })
}

fn condition(status: &str, reason: &str, message: &str, since: Time) -> Condition {
    Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since,
        observed_generation: None,
    }
}

fn is_same(one: &Condition, other: &Condition) -> bool {
    let of = |condition: &Condition| {
        let Condition { status, reason, message, .. } = condition.clone();
        (status, reason, message, condition.last_transition_time.0.as_second())
    };
    of(one) == of(other)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    const DRIVER: &str = "gpu.tessera.dev";

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn key(device: &str) -> Key {
        Key { pool: "p".into(), device: device.into(), share_id: None }
    }

    fn failed(devices: &[&str], message: &str) -> Outcome {
        let devices = devices.iter().map(|device| key(device)).collect();
        Outcome::Failed { devices, reason: "ForeignInstance".into(), message: message.into() }
    }

    /// A claim with these devices (request, name), and another driver's.
    fn claim(devices: &[(&str, &str)]) -> ResourceClaim {
        let result = |(request, device): &(&str, &str)| json!({"request": request, "driver": DRIVER, "pool": "p", "device": device});
        let mut results: Vec<Value> = devices.iter().map(result).collect();
        results
            .push(json!({"request": "nic", "driver": "nic.example.com", "pool": "p", "device": "gpu-3b-00"}));
        let other = json!({"driver": "nic.example.com", "pool": "p", "device": "gpu-3b-00", "conditions": [
            {"type": READY, "status": FALSE, "reason": "A", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let status = json!({"allocation": {"devices": {"results": results}}, "devices": [other]});
        serde_json::from_value(json!({"spec": {}, "status": status})).unwrap()
    }

    /// Writes the entries; returns devices, status, message, seconds of the transition.
    fn write(
        claim: &mut ResourceClaim,
        outcome: &Outcome,
        now: i64,
    ) -> Option<Vec<(String, String, String, i64)>> {
        let entries = entries(claim, DRIVER, outcome, at(now))?;
        let status = claim.status.as_mut().unwrap();
        let devices = status.devices.as_mut().unwrap();
        devices.retain(|entry| entry.driver != DRIVER);
        devices.extend(entries.clone());
        let told = entries.into_iter().map(|entry| {
            assert_eq!((&*entry.driver, &*entry.pool), (DRIVER, "p"));
            let [condition] = <[Condition; 1]>::try_from(entry.conditions.unwrap()).unwrap();
            assert_eq!(condition.type_, READY);
            (entry.device, condition.status, condition.message, condition.last_transition_time.0.as_second())
        });
        Some(told.collect())
    }

    fn told(device: &str, status: &str, message: &str, second: i64) -> (String, String, String, i64) {
        (device.to_owned(), status.to_owned(), message.to_owned(), second)
    }

    #[test]
    fn a_failure_is_told_once_and_keeps_its_first_time() {
        let mut claim = claim(&[("a", "gpu-3b-00"), ("b", "gpu-5e-00")]);
        assert!(!says_failed(&claim, DRIVER), "what another driver says is its own");
        assert_eq!(write(&mut claim, &Outcome::Prepared, 1), None, "nothing was ever wrong");
        let first = failed(&["gpu-3b-00"], "one");
        assert_eq!(write(&mut claim, &first, 10), Some(vec![told("gpu-3b-00", FALSE, "one", 10)]));
        assert!(says_failed(&claim, DRIVER));
        assert_eq!(write(&mut claim, &first, 20), None, "it is told already");
        let second = failed(&["gpu-3b-00"], "two");
        assert_eq!(write(&mut claim, &second, 30), Some(vec![told("gpu-3b-00", FALSE, "two", 10)]));
        // The other device fails now: the entry of the first one is removed.
        let other = failed(&["gpu-5e-00"], "two");
        assert_eq!(write(&mut claim, &other, 40), Some(vec![told("gpu-5e-00", FALSE, "two", 10)]));
        let all = failed(&["gpu-3b-00", "gpu-5e-00"], "two");
        let both = [told("gpu-3b-00", FALSE, "two", 10), told("gpu-5e-00", FALSE, "two", 10)];
        assert_eq!(write(&mut claim, &all, 50).unwrap(), both);
        let both = both.map(|(device, ..)| told(&device, TRUE, "the claim is prepared", 60));
        assert_eq!(write(&mut claim, &Outcome::Prepared, 60).unwrap(), both);
        assert!(!says_failed(&claim, DRIVER));
        assert_eq!(write(&mut claim, &Outcome::Prepared, 70), None);
        assert_eq!(write(&mut claim, &first, 80), Some(vec![told("gpu-3b-00", FALSE, "one", 80)]));
    }

    #[test]
    fn what_is_not_allocated_any_more_gets_no_entry() {
        let mut claim = claim(&[("a", "gpu-5e-00")]);
        assert_eq!(write(&mut claim, &failed(&["gpu-3b-00"], "one"), 10), None);
        claim.status = None;
        assert_eq!(entries(&claim, DRIVER, &Outcome::Prepared, at(1)), None);
    }

    #[test]
    fn an_error_names_the_devices_that_it_is_about() {
        let claim = claim(&[
            ("a", "gpu-3b-00-mig-1g10gb-0"),
            ("a", "gpu-3b-00-mig-1g10gb-5"),
            ("b/small", "gpu-5e-00"),
            ("c", "elephant"),
        ]);
        let named = |about| -> Vec<String> {
            devices(&claim, DRIVER, about).into_iter().map(|key| key.device).collect()
        };
        assert_eq!(named(About::Device("gpu-3b-00-mig-1g10gb-5")), ["gpu-3b-00-mig-1g10gb-5"]);
        let of_card = ["gpu-3b-00-mig-1g10gb-0", "gpu-3b-00-mig-1g10gb-5"];
        assert_eq!(named(About::Device("gpu-3b-00-mig-mode")), of_card);
        assert_eq!(named(About::Device("gpu-99-00-mig-mode")).len(), 4);
        assert_eq!(named(About::Request("b/small")), ["gpu-5e-00"]);
        assert_eq!(named(About::UnknownNames), ["elephant"]);
        assert_eq!(named(About::All).len(), 4);
    }
}
