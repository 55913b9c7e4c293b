//! Plans one MPS share or time-slice.

use tessera_api::DeviceName;

use crate::prepare::PrepareError;
use crate::prepare::cards::changes::Tools;
use crate::prepare::cards::record_ids::{own_share_id, partition_id};
use crate::prepare::claim::{DeviceNeed, OwnDaemon, OwnSharing, ShareLimits};
use tessera_journal::{HardwareChange, HardwareRecord, PartitionInstances, Stage};

/// A share to make.
#[derive(Debug)]
pub(in crate::prepare::cards::changes) struct ShareMake {
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
        let own = match &need.own_sharing {
            Some(OwnSharing::Mps(daemon)) => Some(daemon.clone()),
            _ => None,
        };
        let (device, limits) = (need.name.clone(), need.allocated.share);
        let cdi_name = need.allocated.cdi_name.clone();
        Ok(Some(Self { device, record, is_new, uuid, partition, cdi_name, limits, own }))
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
