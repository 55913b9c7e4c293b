//! Step 2: the devices of this driver allocated to a claim in the API.

use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use tessera_api::DeviceName;
use tessera_api::config::Sharing;
use tessera_api::offer::TimeSliceInterval;

use super::config::{Configs, Settings};
use super::limits::{self, ShareLimits};
use super::reference::is_identifier;
use crate::cdi;
use crate::prepare::PrepareError;
use tessera_journal::{ClaimDevice, ClaimRecord, ClaimSharing};

/// A result of a claim's allocation for this driver to prepare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::prepare) struct AllocatedDevice {
    /// The request, without the subrequest's part: the kubelet matches this name against the requests of containers.
    pub request: String,
    /// The subrequest's part of the request name.
    pub alternative: Option<String>,
    pub device: DeviceName,
    pub pool: String,
    pub share_id: Option<String>,
    pub admin_access: bool,
    pub settings: Settings,
    /// The device's name for the container runtime; unique on the node.
    pub cdi_name: String,
    /// Limits of each process on a device shared by MPS.
    pub share: Option<ShareLimits>,
    /// Memory promised to another share, MiB.
    pub memory_mib: Option<u64>,
}

impl AllocatedDevice {
    /// How the claim's own pods share the device. None with admin access, because admin access only looks and changes nothing.
    pub fn own_sharing(&self) -> Option<&ClaimSharing> {
        self.settings.sharing.as_ref().filter(|_| !self.admin_access)
    }

    /// Whether preparing the device may set the length of its card's time-slices.
    pub fn sets_time_slices(&self) -> bool {
        let is_set = |sharing: &ClaimSharing| match &sharing.how {
            Sharing::TimeSlicing(slicing) => slicing.interval != TimeSliceInterval::Default,
            _ => false,
        };
        matches!(self.device, DeviceName::TimeSlice(_)) || self.own_sharing().is_some_and(is_set)
    }
}

/// The results of this driver. Other drivers prepare their own results in the same claim.
///
/// # Errors
/// [`PrepareError::NotAllocated`], and the errors of [`device`] for a result impossible for this driver.
pub(in crate::prepare) fn allocated_devices(
    claim: &ResourceClaim,
    name: &str,
    driver_name: &str,
    pool_name: &str,
) -> Result<Vec<AllocatedDevice>, PrepareError> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let allocation = allocation.ok_or_else(|| PrepareError::NotAllocated { claim: name.to_owned() })?;
    let Some(devices) = &allocation.devices else { return Ok(Vec::new()) };
    let of_spec = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref()?.config.as_deref());
    let configs = Configs::new(devices.config.as_deref().unwrap_or_default(), driver_name)
        .named_by(of_spec.unwrap_or_default());
    let results = devices.results.iter().flatten().filter(|result| result.driver == driver_name);
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let allocated = results.map(|result| device(result, uid, pool_name, &configs));
    let allocated = allocated.collect::<Result<Vec<_>, _>>()?;
    one_share_a_request(&allocated)?;
    Ok(allocated)
}

/// Refuses two shares in one request. A container gets all devices of a request, but can be a client of only one MPS
/// daemon, with one set of limits.
fn one_share_a_request(allocated: &[AllocatedDevice]) -> Result<(), PrepareError> {
    let shares: Vec<&AllocatedDevice> = allocated.iter().filter(|device| device.share.is_some()).collect();
    let second = shares
        .iter()
        .enumerate()
        .find(|(index, share)| shares[..*index].iter().any(|earlier| earlier.request == share.request));
    second.map_or(Ok(()), |(_, share)| {
        Err(PrepareError::Sharing {
            device: share.device.to_string(),
            reason: format!(
                "request {} was given more than one share, and a container can use one only: ask for one larger share, \
                 or for several by requests of their own, each used by another container",
                share.request
            ),
        })
    })
}

fn device(
    result: &DeviceRequestAllocationResult,
    claim_uid: &str,
    pool_name: &str,
    configs: &Configs<'_>,
) -> Result<AllocatedDevice, PrepareError> {
    if result.pool != pool_name {
        return Err(PrepareError::ForeignPool {
            device: result.device.clone(),
            pool: result.pool.clone(),
            expected: pool_name.to_owned(),
        });
    }
    let device: DeviceName = result.device.parse()?;
    let share = match device {
        DeviceName::Card(_) | DeviceName::Partition(_) | DeviceName::TimeSlice(_) => None,
        DeviceName::Mps(_) | DeviceName::PartitionMps(_) if result.admin_access == Some(true) => None,
        DeviceName::Mps(_) | DeviceName::PartitionMps(_) => {
            let device = result.device.clone();
            let limits = ShareLimits::of(result.consumed_capacity.as_ref());
            Some(limits.map_err(|error| PrepareError::Sharing { device, reason: error.to_string() })?)
        }
        _ => return Err(PrepareError::UnknownKind(result.device.clone())),
    };
    let is_unlimited = share.is_none() && result.share_id.is_some() && result.admin_access != Some(true);
    let memory_mib = result.consumed_capacity.as_ref().filter(|_| is_unlimited).and_then(limits::memory_mib);
    let settings = configs.of(&result.request, device.device_type())?;
    if let Some(share_id) = result.share_id.as_deref().filter(|share_id| !is_identifier(share_id)) {
        return Err(PrepareError::Reference { what: "share id", value: share_id.chars().take(80).collect() });
    }
    refuse_own_daemon(result, &settings)?;
    let (request, alternative) = match result.request.split_once('/') {
        None => (&*result.request, None),
        Some((request, alternative)) => (request, Some(alternative)),
    };
    let cdi_name = cdi::device_name(claim_uid, &device.to_string(), result.share_id.as_deref());
    Ok(AllocatedDevice {
        request: request.to_owned(),
        alternative: alternative.map(str::to_owned),
        device,
        pool: result.pool.clone(),
        share_id: result.share_id.clone(),
        admin_access: result.admin_access == Some(true),
        settings,
        cdi_name,
        share,
        memory_mib,
    })
}

/// Refuses a claim's own MPS daemon on a card or a partition shared with other claims.
fn refuse_own_daemon(
    result: &DeviceRequestAllocationResult,
    settings: &Settings,
) -> Result<(), PrepareError> {
    match &settings.sharing {
        Some(ClaimSharing { how: Sharing::Mps(_), .. }) if result.share_id.is_some() => {
            Err(PrepareError::Sharing {
                device: result.device.clone(),
                reason: "other claims have it, too (sharing.consumableShares of its GpuPool), and the MPS daemon of a claim \
                         serves this one alone: leave strategy MPS out, or ask for a share by MPS, where a GpuPool offers them"
                    .to_owned(),
            })
        }
        _ => Ok(()),
    }
}

/// Whether a record is of this allocation. A claim can be deallocated and allocated again under the same UID.
pub(in crate::prepare) fn is_of_allocation(record: &ClaimRecord, allocated: &[AllocatedDevice]) -> bool {
    let same = |recorded: &ClaimDevice, allocated: &AllocatedDevice| {
        recorded.device == allocated.device.to_string()
            && recorded.pool == allocated.pool
            && recorded.request == allocated.request
            && recorded.share_id == allocated.share_id
            && recorded.admin_access == allocated.admin_access
            && recorded.sharing.as_ref() == allocated.own_sharing()
            && (recorded.sharing.is_some()
                || recorded.mps.as_ref().map(|mps| (mps.memory_limit_mib, mps.active_thread_percentage))
                    == allocated
                        .share
                        .map(ShareLimits::to_record)
                        .map(|mps| (mps.memory_limit_mib, mps.active_thread_percentage)))
    };
    record.devices.len() == allocated.len()
        && allocated.iter().all(|allocated| record.devices.iter().any(|recorded| same(recorded, allocated)))
}

/// The allocated devices, rebuilt from a record. The limits of MPS shares are not complete.
pub(in crate::prepare) fn recorded_devices(
    record: &ClaimRecord,
) -> Result<Vec<AllocatedDevice>, PrepareError> {
    let device = |device: &ClaimDevice| {
        let mut settings = Settings::default();
        settings.sharing.clone_from(&device.sharing);
        settings.mig.compute_slices =
            device.partition.as_ref().and_then(|partition| partition.compute_slices);
        Ok(AllocatedDevice {
            request: device.request.clone(),
            alternative: device.alternative.clone(),
            device: device.device.parse()?,
            pool: device.pool.clone(),
            share_id: device.share_id.clone(),
            admin_access: device.admin_access,
            settings,
            cdi_name: device.cdi_name().to_owned(),
            share: None,
            memory_mib: device.memory_mib,
        })
    };
    record.devices.iter().map(device).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn devices(results: serde_json::Value) -> Result<Vec<AllocatedDevice>, PrepareError> {
        let claim = json!({"status": {"allocation": {"devices": {"results": results}}}});
        let claim = serde_json::from_value(claim).unwrap();
        allocated_devices(&claim, "ns/claim", "gpu.tessera.dev", "gpu.tessera.dev/node")
    }

    fn result(changes: serde_json::Value) -> serde_json::Value {
        let mut result = json!({
            "request": "gpus", "driver": "gpu.tessera.dev", "pool": "gpu.tessera.dev/node", "device": "gpu-3b-00",
        });
        result.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        result
    }

    #[test]
    fn results_of_other_drivers_are_theirs() {
        let devices = devices(json!([
            result(json!({"driver": "nic.example.com", "device": "nic-0", "pool": "x"})),
            result(json!({"request": "gpus/big"})),
            result(json!({"request": "watch", "adminAccess": true, "device": "gpu-5e-00"})),
        ]))
        .unwrap();
        assert_eq!(devices.len(), 2);
        assert_eq!((&*devices[0].request, devices[0].admin_access), ("gpus", false));
        assert_eq!((&*devices[1].request, devices[1].admin_access), ("watch", true));
        assert_eq!(devices[1].device.to_string(), "gpu-5e-00");
    }

    #[test]
    fn what_is_not_of_this_node_is_refused() {
        let one = |changes| devices(json!([result(changes)])).unwrap_err();
        assert!(matches!(one(json!({"pool": "gpu.tessera.dev/other"})), PrepareError::ForeignPool { .. }));
        assert!(matches!(one(json!({"device": "gpu-zz-00"})), PrepareError::Device(_)));
        assert!(matches!(one(json!({"device": "../../x"})), PrepareError::Device(_)));
        assert!(matches!(one(json!({"shareID": "../x"})), PrepareError::Reference { .. }));
    }

    #[test]
    fn the_memory_of_a_share_without_a_limit_is_kept() {
        let memory = |changes| devices(json!([result(changes)])).unwrap()[0].memory_mib;
        let slice = json!({"device": "gpu-3b-00-ts", "shareID": "5ba7e000-0001",
            "consumedCapacity": {"slots": "1", "memory": "20Gi"}});
        assert_eq!(memory(slice.clone()), Some(20_480));
        // Of a version that published no memory.
        let mut without = slice.clone();
        without["consumedCapacity"] = json!({"slots": "1"});
        assert_eq!(memory(without), None);
        // One of an unlimited number of claims of a card.
        assert_eq!(memory(json!({"shareID": "5ba7e000-0001", "consumedCapacity": {"memory": "0"}})), None);
        let mut watching = slice;
        watching["adminAccess"] = json!(true);
        assert_eq!(memory(watching), None);
        let consumed = json!({"memory": "1Gi", "compute": "25", "clients": "1"});
        let mps =
            json!({"device": "gpu-3b-00-mps", "shareID": "5ba7e000-0001", "consumedCapacity": consumed});
        assert_eq!(memory(mps), None, "MPS limits it");
        assert_eq!(memory(json!({})), None);
    }

    #[test]
    fn an_allocation_that_differs_in_anything_is_another() {
        let share = |changes: serde_json::Value| {
            let mut share = result(json!({
                "device": "gpu-3b-00-mps", "shareID": "5ba7e000-0001",
                "consumedCapacity": {"memory": "1Gi", "compute": "25", "clients": "1"},
            }));
            share.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            share
        };
        let recorded = json!({
            "device": "gpu-3b-00-mps", "card": "0000:3b:00.0", "pool": "gpu.tessera.dev/node", "request": "gpus",
            "shareId": "5ba7e000-0001", "cardUuid": "GPU-0", "minor": 0, "cdiDeviceId": "gpu.tessera.dev/claim=u",
            "mps": {"memoryLimitMib": 1024, "activeThreadPercentage": 25},
        });
        let record = json!({
            "version": 1, "namespace": "ns", "name": "claim", "uid": "u", "bootId": "boot-1", "stage": "complete",
            "devices": [recorded],
        });
        let record: ClaimRecord = serde_json::from_value(record).unwrap();
        let is_of = |results: serde_json::Value| is_of_allocation(&record, &devices(results).unwrap());
        assert!(is_of(json!([share(json!({}))])));
        for (what, other) in [
            ("device", json!({"device": "gpu-5e-00-mps"})),
            ("request", json!({"request": "other"})),
            ("share", json!({"shareID": "5ba7e000-0002"})),
            ("admin access", json!({"adminAccess": true})),
            ("memory", json!({"consumedCapacity": {"memory": "2Gi", "compute": "25", "clients": "1"}})),
            ("compute", json!({"consumedCapacity": {"memory": "1Gi", "compute": "50", "clients": "1"}})),
        ] {
            assert!(!is_of(json!([share(other)])), "{what}");
        }
        assert!(!is_of(json!([])));
        assert!(!is_of(json!([
            share(json!({})),
            result(json!({"request": "whole", "device": "gpu-5e-00"}))
        ])));

        let mut own = record.clone();
        own.devices[0].pool = "gpu.tessera.dev/before-it-was-renamed".into();
        assert!(!is_of_allocation(&own, &devices(json!([share(json!({}))])).unwrap()));
        let mut own = record;
        let how = json!({"object": 0, "how": {"mps": {}}});
        own.devices[0].sharing = Some(serde_json::from_value(how).unwrap());
        assert!(!is_of_allocation(&own, &devices(json!([share(json!({}))])).unwrap()));
    }

    #[test]
    fn a_claim_without_allocation() {
        for claim in [json!({}), json!({"status": {}})] {
            let claim = serde_json::from_value(claim).unwrap();
            let devices = allocated_devices(&claim, "ns/claim", "d", "p");
            assert!(matches!(devices, Err(PrepareError::NotAllocated { .. })));
        }
    }
}
