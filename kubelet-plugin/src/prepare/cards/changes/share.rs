//! Step 8: makes the shares of a card's plan.

use std::collections::BTreeMap;
use std::time::Instant;

use super::Tools;
use super::plan::{CardPlan, ShareMake};
use crate::prepare::cards::sharing::Share;
use crate::prepare::{HardwareWork, PrepareError};
use tessera_journal::{ClaimMps, HardwareChange, MpsDaemonChange, PartitionInstances, Stage};

/// Makes a card's shares, after the partitions of all of the claim's cards. Returns the MPS shares by the CDI names
/// of their devices.
pub(in crate::prepare) fn make_shares(
    tools: &Tools,
    plan: &CardPlan,
    made: &BTreeMap<String, PartitionInstances>,
) -> Result<BTreeMap<String, ClaimMps>, PrepareError> {
    let mut shares = BTreeMap::new();
    for share in &plan.shares {
        let start = Instant::now();
        let result = make_share(tools, share, made);
        let outcome = result.as_ref().map_or_else(PrepareError::reason, |_| "success");
        tools.observer.hardware(HardwareWork::MakeShare, outcome, start.elapsed());
        if let Some(mps) = result? {
            shares.insert(share.cdi_name.clone(), mps);
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
            if record.stage != Stage::Complete {
                tools.complete(record)?;
            }
            Ok(Some(mps))
        }
        Some(HardwareChange::TimeSlice(mut change)) => {
            if record.stage != Stage::Complete {
                tools.sharing.set_time_slice(&tools.journal, &*tools.nvml, &mut record, &mut change)?;
                tools.complete(record)?;
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}
