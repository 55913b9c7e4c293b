//! MPS shares and time-slices in a card's plan.

use std::collections::BTreeMap;
use std::time::Instant;

use tessera_api::DeviceName;

use super::Tools;
use super::plan::CardPlan;
use crate::prepare::cards::record_ids::{device_of_share, own_share_id, partition_id};
use crate::prepare::cards::sharing::Share;
use crate::prepare::claim::limits::ShareLimits;
use crate::prepare::claim::need::DeviceNeed;
use crate::prepare::claim::own::{OwnDaemon, OwnSharing};
use crate::prepare::{HardwareWork, PrepareError};
use tessera_journal::{
    ClaimMps, HardwareChange, HardwareRecord, MpsDaemonChange, PartitionInstances, Stage, TimeSliceChange,
};

/// A share to make.
#[derive(Debug)]
pub(super) struct ShareMake {
    /// Position of the device in the claim.
    pub index: usize,
    /// The device.
    pub device: String,
    pub record: HardwareRecord,
    /// Whether the record is an intent not written to the disk yet.
    pub is_new: bool,
    /// UUID of the shared device, if known before the device is made.
    pub uuid: Option<String>,
    /// The record of the shared partition.
    pub partition: Option<String>,
    /// The share's name in the claim's CDI spec.
    pub cdi_name: String,
    pub limits: Option<ShareLimits>,
    /// The daemon, if serving only this claim.
    pub own: Option<OwnDaemon>,
}

impl ShareMake {
    /// Plans the share of a device; `None` if the device is not shared or is claimed with admin access. `records` are the card's,
    /// `intent` makes a new one.
    pub fn plan(
        tools: &Tools,
        index: usize,
        need: &DeviceNeed,
        instances: Option<&PartitionInstances>,
        records: &[HardwareRecord],
        intent: impl FnOnce(String, HardwareChange) -> HardwareRecord,
    ) -> Result<Option<Self>, PrepareError> {
        let is_share = matches!(
            need.allocated.device,
            DeviceName::Mps(_) | DeviceName::PartitionMps(_) | DeviceName::TimeSlice(_)
        );
        if need.allocated.admin_access || !(is_share || need.own_sharing.is_some()) {
            return Ok(None);
        }
        let id = need.own_sharing.as_ref().map_or_else(|| need.name.clone(), |_| own_share_id(&need.name));
        let recorded = records.iter().find(|record| record.id == id);
        let recorded = recorded.filter(|record| record.stage == Stage::Complete || record.daemon().is_some());
        let is_new = recorded.is_none();
        one_interval(need, recorded)?;
        // A device keeps its way of sharing, whatever the card's GpuPool says now.
        let record = match recorded {
            Some(record) => record.clone(),
            None => match tools.sharing.change(need)? {
                Some(change) => intent(id, change),
                None => return Ok(None),
            },
        };
        let partition = match &need.allocated.device {
            DeviceName::PartitionMps(partition) | DeviceName::Partition(partition) => {
                Some(partition_id(partition))
            }
            _ => None,
        };
        let uuid = match &partition {
            None => Some(need.identity.uuid.clone()),
            Some(_) => instances.map(|instances| instances.uuid.clone()),
        };
        let own = need.own_sharing.as_ref().and_then(OwnSharing::daemon).cloned();
        let (device, limits) = (need.name.clone(), need.allocated.share);
        let cdi_name = need.allocated.cdi_name.clone();
        Ok(Some(Self { index, device, record, is_new, uuid, partition, cdi_name, limits, own }))
    }
}

/// Refuses another length of time-slices than another claim on the same device has set.
fn one_interval(need: &DeviceNeed, recorded: Option<&HardwareRecord>) -> Result<(), PrepareError> {
    let (Some(OwnSharing::TimeSlicing { interval }), Some(HardwareChange::TimeSlice(set))) =
        (&need.own_sharing, recorded.and_then(HardwareRecord::known_change))
    else {
        return Ok(());
    };
    if set.interval == *interval {
        return Ok(());
    }
    Err(PrepareError::Sharing {
        device: need.name.clone(),
        reason: format!(
            "another claim on it has set its time-slices to {}, and this one asks for {interval}: claims on one device ask \
             for the same interval, or for none",
            set.interval
        ),
    })
}

/// Makes a card's shares, after the partitions of all of the claim's cards. Returns the MPS shares by the positions
/// of their devices in the claim.
pub(in crate::prepare) fn make_shares(
    tools: &Tools,
    plan: &CardPlan,
    made: &BTreeMap<String, PartitionInstances>,
) -> Result<BTreeMap<usize, ClaimMps>, PrepareError> {
    let mut shares = BTreeMap::new();
    for share in &plan.shares {
        let start = Instant::now();
        let result = make_share(tools, share, made);
        let outcome = result.as_ref().map_or_else(PrepareError::reason, |_| "success");
        tools.observer.hardware(HardwareWork::MakeShare, outcome, start.elapsed());
        if let Some(mps) = result? {
            shares.insert(share.index, mps);
        }
    }
    Ok(shares)
}

fn make_share(
    tools: &Tools,
    share: &ShareMake,
    made: &BTreeMap<String, PartitionInstances>,
) -> Result<Option<ClaimMps>, PrepareError> {
    let mut record = share.record.clone();
    let device = share.device.clone();
    match record.known_change() {
        Some(HardwareChange::MpsDaemon(change)) => {
            let of_partition =
                share.partition.as_ref().and_then(|id| made.get(id)).map(|made| made.uuid.clone());
            let uuid = share.uuid.clone().or(of_partition).ok_or_else(|| PrepareError::Mps {
                device: device.clone(),
                reason: "the partition has no UUID".to_owned(),
                may_pass: false,
            })?;
            // Recorded before the call of mps-host, because the daemon is found again by its UUID.
            let (key, owner) = match &share.own {
                None => (uuid.clone(), None),
                Some(own) => (own.key(&uuid).to_owned(), Some(own.owner.clone())),
            };
            let change = MpsDaemonChange { device_uuid: Some(key), owner, ..change };
            record.change = HardwareChange::MpsDaemon(change.clone()).to_map();
            if share.is_new || record != share.record {
                tools.journal.put_hardware_unsynced(&record)?;
            }
            let mps = match (&share.own, share.limits) {
                (Some(own), _) => tools.sharing.ensure_own_mps(&device, own, &uuid)?,
                (None, Some(limits)) => {
                    let share = Share { cdi_name: &share.cdi_name, uuid: &uuid, limits };
                    tools.sharing.ensure_mps(&tools.journal, &device, record.card, &change, &share)?
                }
                (None, None) => {
                    let reason = "the allocation has no limits".to_owned();
                    return Err(PrepareError::Mps { device, reason, may_pass: false });
                }
            };
            complete(tools, record)?;
            Ok(Some(mps))
        }
        Some(HardwareChange::TimeSlice(mut change)) => {
            if record.stage != Stage::Complete {
                tools.sharing.set_time_slice(&tools.journal, &*tools.nvml, &mut record, &mut change)?;
                complete(tools, record)?;
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

fn complete(tools: &Tools, record: HardwareRecord) -> Result<(), PrepareError> {
    if record.stage != Stage::Complete {
        let complete = HardwareRecord { stage: Stage::Complete, ..record };
        // No sync: a record of another boot is not believed.
        tools.journal.put_hardware_unsynced(&complete)?;
    }
    Ok(())
}

/// Ends a daemon no longer shared by any claim. `known` are the card's records, including its partition's.
pub(super) fn end_daemon(
    tools: &Tools,
    record: &HardwareRecord,
    change: &MpsDaemonChange,
) -> Result<(), PrepareError> {
    // Without a UUID, mps-host has not been asked yet.
    let Some(uuid) = &change.device_uuid else { return Ok(()) };
    let start = Instant::now();
    let device = device_of_share(&record.id);
    let owner = change.owner.as_deref();
    let ended = tools.sharing.release_mps(&*tools.nvml, device, record.card, uuid, owner);
    tell(tools, start, &ended);
    ended
}

/// Restores a card's time-slices.
pub(super) fn end_time_slices(
    tools: &Tools,
    record: &HardwareRecord,
    change: &TimeSliceChange,
) -> Result<(), PrepareError> {
    let start = Instant::now();
    let ended = tools.sharing.put_back_time_slice(&*tools.nvml, record, change);
    tell(tools, start, &ended);
    ended
}

fn tell(tools: &Tools, start: Instant, ended: &Result<(), PrepareError>) {
    let outcome = ended.as_ref().map_or_else(PrepareError::reason, |()| "success");
    tools.observer.hardware(HardwareWork::EndShare, outcome, start.elapsed());
}
