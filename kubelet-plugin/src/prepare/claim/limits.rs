//! Limits of a share.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use tessera_api::{Quantity, capacity};

use tessera_journal::{ClaimDevice, ClaimMps, Journal, JournalError};
use tessera_mps_host::protocol::{Settings, StaticShares};

const MIB: i64 = 1 << 20;
const NANO: i128 = 1_000_000_000;

/// Limits of one process of a claim on a device shared by MPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prepare) struct ShareLimits {
    /// MiB.
    pub memory_limit_mib: u64,
    /// 1 to 100.
    pub active_thread_percentage: u8,
    /// Of all the claim's processes together, MiB.
    pub memory_mib: u64,
    /// Of all the claim's processes together, 1 to 100.
    pub compute: u8,
}

/// Why an allocation has no valid limits.
#[derive(Debug, thiserror::Error)]
#[error("the allocation consumes {capacity} {value:?}: expected {expected}")]
pub(in crate::prepare) struct InvalidShare {
    capacity: &'static str,
    value: Option<String>,
    expected: &'static str,
}

impl ShareLimits {
    /// The limits from the capacity consumed by an allocation. MPS limits single processes, so the capacity is divided by the
    /// number of processes declared in the claim.
    pub fn of(consumed: Option<&BTreeMap<String, QuantityText>>) -> Result<Self, InvalidShare> {
        let number = |name: &'static str, expected: &'static str, range: std::ops::RangeInclusive<i64>| {
            let text = consumed.and_then(|consumed| consumed.get(name)).map(|text| text.0.clone());
            let quantity = text.as_ref().and_then(|text| text.parse::<Quantity>().ok());
            // A request may ask for a fraction of a byte.
            let value = quantity.and_then(|quantity| i64::try_from(quantity.nanos().div_euclid(NANO)).ok());
            let invalid = || InvalidShare { capacity: name, value: text.clone(), expected };
            value.filter(|value| range.contains(value)).ok_or_else(invalid)
        };
        let memory = number(capacity::MEMORY, "1Mi or more", MIB..=i64::MAX)?;
        let compute = number(capacity::COMPUTE, "1 to 100", 1..=100)?;
        let clients = number(capacity::CLIENTS, "1 or more", 1..=1024)?;
        let memory_limit_mib = u64::try_from(memory / MIB / clients).unwrap_or_default().max(1);
        let active_thread_percentage = u8::try_from(compute / clients).unwrap_or(100).max(1);
        let compute = u8::try_from(compute).unwrap_or(100);
        let memory_mib = u64::try_from(memory / MIB).unwrap_or_default();
        Ok(Self { memory_limit_mib, active_thread_percentage, memory_mib, compute })
    }

    /// The limits in the form of a claim's record, before the daemon is known.
    pub fn to_record(self) -> ClaimMps {
        ClaimMps {
            memory_limit_mib: Some(self.memory_limit_mib),
            active_thread_percentage: Some(self.active_thread_percentage),
            memory_mib: Some(self.memory_mib),
            compute: Some(self.compute),
            ..ClaimMps::default()
        }
    }
}

/// MiB of memory consumed by an allocation; `None` also for one that consumes none.
pub(in crate::prepare) fn memory_mib(consumed: &BTreeMap<String, QuantityText>) -> Option<u64> {
    let memory: Quantity = consumed.get(capacity::MEMORY)?.0.parse().ok()?;
    u64::try_from(memory.nanos().div_euclid(NANO) / i128::from(MIB)).ok().filter(|mib| *mib > 0)
}

/// A daemon's limits per process: the largest need of any of its shares. A container dropping its own limits gets no more.
/// `leaving` is the UID of a claim left out of the count.
pub(in crate::prepare) fn most(
    journal: &Journal,
    device: &str,
    own: Option<ShareLimits>,
    leaving: Option<&str>,
) -> Result<Settings, JournalError> {
    let mut memory = own.map(|own| own.memory_limit_mib);
    let mut percentage = own.map(|own| own.active_thread_percentage);
    for_each_share(journal, device, leaving, |_, share| {
        memory = memory.max(share.memory_limit_mib);
        percentage = percentage.max(share.active_thread_percentage);
    })?;
    Ok(Settings { memory_limit_mib: memory, active_thread_percentage: percentage })
}

/// All shares of a device with multiprocessors of their own, by their CDI names, unique on the node.
pub(in crate::prepare) fn static_shares(
    journal: &Journal,
    device: &str,
    leaving: Option<&str>,
) -> Result<StaticShares, JournalError> {
    let mut shares = StaticShares::new();
    for_each_share(journal, device, leaving, |claimed, share| {
        let compute = share.compute.or(share.active_thread_percentage);
        shares.extend(compute.map(|compute| (claimed.cdi_name().to_owned(), compute)));
    })?;
    Ok(shares)
}

fn for_each_share(
    journal: &Journal,
    device: &str,
    leaving: Option<&str>,
    mut look: impl FnMut(&ClaimDevice, &ClaimMps),
) -> Result<(), JournalError> {
    for entry in journal.shared_claims()? {
        let Ok(claim) = entry.record else { continue };
        if claim.boot_id != *journal.boot_id() || leaving == Some(&*claim.uid) {
            continue;
        }
        for claimed in claim.devices.iter().filter(|claimed| claimed.device == device) {
            if let Some(share) = &claimed.mps {
                look(claimed, share);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use tessera_journal::{BootId, LocalFileSystem};

    fn of(consumed: &[(&str, &str)]) -> Result<ShareLimits, String> {
        let consumed =
            consumed.iter().map(|(name, value)| ((*name).into(), QuantityText((*value).into()))).collect();
        ShareLimits::of(Some(&consumed)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_consumed_is_divided_by_the_processes() {
        let one = of(&[("memory", "20Gi"), ("compute", "25"), ("clients", "1")]).unwrap();
        assert_eq!(
            one,
            ShareLimits {
                memory_limit_mib: 20_480,
                active_thread_percentage: 25,
                memory_mib: 20_480,
                compute: 25
            }
        );
        let four = of(&[("memory", "20Gi"), ("compute", "25"), ("clients", "4")]).unwrap();
        assert_eq!(
            four,
            ShareLimits {
                memory_limit_mib: 5120,
                active_thread_percentage: 6,
                memory_mib: 20_480,
                compute: 25
            }
        );
        let parts = of(&[("memory", "1610612736500m"), ("compute", "25"), ("clients", "1")]).unwrap();
        assert_eq!(parts.memory_limit_mib, 1536);
        let many = of(&[("memory", "128Mi"), ("compute", "1"), ("clients", "48")]).unwrap();
        let expected =
            ShareLimits { memory_limit_mib: 2, active_thread_percentage: 1, memory_mib: 128, compute: 1 };
        assert_eq!(many, expected);
    }

    #[test]
    fn what_cannot_be_enforced_is_refused() {
        for (consumed, part) in [
            (&[("compute", "25"), ("clients", "1")][..], "memory"),
            (&[("memory", "0"), ("compute", "25"), ("clients", "1")], "1Mi"),
            (&[("memory", "1000"), ("compute", "25"), ("clients", "1")], "1Mi"),
            (&[("memory", "-9223372036854775808"), ("compute", "25"), ("clients", "1")], "1Mi"),
            (&[("memory", "1Gi"), ("compute", "0"), ("clients", "1")], "compute"),
            (&[("memory", "1Gi"), ("compute", "101"), ("clients", "1")], "101"),
            (&[("memory", "1Gi"), ("compute", "half"), ("clients", "1")], "half"),
            (&[("memory", "1Gi"), ("compute", "25"), ("clients", "0")], "clients"),
        ] {
            let error = of(consumed).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert!(ShareLimits::of(None).is_err());
    }

    #[test]
    fn only_this_boots_shares_of_the_device_count_and_not_the_one_that_leaves() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let journal = Journal::open(Arc::new(LocalFileSystem), path, BootId::from("boot-2")).unwrap();
        for (uid, boot, device, percentage) in [
            ("stays", "boot-2", "gpu-3b-00-mps", 10),
            ("leaves", "boot-2", "gpu-3b-00-mps", 50),
            ("elsewhere", "boot-2", "gpu-5e-00-mps", 80),
            ("of-another-boot", "boot-1", "gpu-3b-00-mps", 90),
        ] {
            let device = json!({
                "device": device, "card": "0000:3b:00.0", "pool": "p", "request": "r", "cardUuid": "GPU-0", "minor": 0,
                "cdiDeviceId": format!("gpu.tessera.dev/claim={uid}"),
                "mps": {"memoryLimitMib": percentage * 100, "activeThreadPercentage": percentage},
            });
            let record = json!({
                "version": 1, "namespace": "ns", "name": uid, "uid": uid, "bootId": boot, "stage": "complete",
                "devices": [device],
            });
            journal.put_claim(&serde_json::from_value(record).unwrap()).unwrap();
        }
        let most = |leaving| {
            let settings = most(&journal, "gpu-3b-00-mps", None, leaving).unwrap();
            (settings.memory_limit_mib, settings.active_thread_percentage)
        };
        assert_eq!(most(None), (Some(5000), Some(50)));
        assert_eq!(most(Some("leaves")), (Some(1000), Some(10)));
        let shares = |leaving| static_shares(&journal, "gpu-3b-00-mps", leaving).unwrap();
        assert_eq!(shares(None).into_keys().collect::<Vec<_>>(), ["leaves", "stays"]);
        assert_eq!(shares(Some("leaves")), StaticShares::from([("stays".to_owned(), 10)]));
    }
}
