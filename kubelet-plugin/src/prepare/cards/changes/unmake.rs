//! Undoes the records of a card.

use std::time::Instant;

use tessera_api::PciBusId;
use tessera_card::{clients, destroy_partition, is_of_change};
use tessera_nvml::{GpuInstance, Identity};

use super::mode::switch_mode;
use super::{Tools, on_or_off};
use crate::prepare::cards::record_ids::device_of_share;
use crate::prepare::{HardwareWork, PrepareError};
use tessera_journal::{
    HardwareChange, HardwareRecord, ModeChange, MpsDaemonChange, PartitionChange, Stage, TimeSliceChange,
};

/// Result of undoing records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prepare) enum Left {
    /// Everything is undone.
    Nothing,
    /// The card does not answer: its records stay and are undone when the card is back.
    Records,
    /// A partition not released by the driver stays. Its record stays too, marked as not released.
    Held,
}

/// Reaction when the driver does not destroy a partition because of use, but names no program: a monitor such as DCGM may keep
/// the partition open for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prepare) enum IfHeld {
    /// Fail with an error.
    Wait,
    /// Fail with an error, and mark the record as not released, so the partition's devices get no new claims.
    Tell,
    /// Mark the record as not released, and let the claim end without the partition.
    Leave,
}

/// Undoes the existing changes in records of a card and removes the records: shares first, then partitions, then the mode.
/// Blocks, for seconds.
///
/// Changes made in another boot or on another card are gone, so only their records are removed. Touches nothing unless recognised
/// as made by the record's change.
///
/// `if_held` is the reaction to a partition in use by unknown programs.
///
/// # Errors
/// [`PrepareError::PartitionBusy`] and [`PrepareError::CardBusy`] while programs use the device, [`PrepareError::Mps`] and
/// [`PrepareError::TimeSlice`] if a share can't be ended, [`PrepareError::Hardware`], [`PrepareError::Journal`]. The record of a
/// change not undone stays.
pub(in crate::prepare) fn unmake(
    tools: &Tools,
    card: PciBusId,
    ids: &[String],
    if_held: IfHeld,
) -> Result<Left, PrepareError> {
    let entries = tools.journal.hardware_of(card)?.into_iter().filter(|entry| ids.contains(&entry.id));
    let mut records: Vec<HardwareRecord> = entries.filter_map(|entry| entry.record.ok()).collect();
    if records.is_empty() {
        return Ok(Left::Nothing);
    }
    // Shares before the partitions and cards they are shares of.
    records.sort_by_key(|record| match record.known_change() {
        Some(HardwareChange::MpsDaemon(_) | HardwareChange::TimeSlice(_)) => 0,
        Some(HardwareChange::MigMode(_)) => 2,
        _ => 1,
    });
    let identity = match tools.nvml.identify(card) {
        Ok(identity) => Some(identity),
        Err(error) if error.is_card_gone() => None,
        Err(source) => return Err(PrepareError::Hardware { device: records[0].id.clone(), source }),
    };
    let mut left = Left::Nothing;
    for record in records {
        let is_of_now = record.boot_id == *tools.journal.boot_id();
        match &identity {
            None if is_of_now => return Ok(Left::Records),
            Some(identity) if is_of_now && identity.uuid == record.card_uuid => {
                let unmaker = Unmaker { tools, card, identity, if_held };
                match unmaker.unmake(&record)? {
                    Left::Nothing => {}
                    Left::Held => {
                        left = Left::Held;
                        continue;
                    }
                    Left::Records if left == Left::Held => return Ok(left),
                    Left::Records => return Ok(Left::Records),
                }
            }
            _ => {}
        }
        tools.journal.remove_hardware_unsynced(&record.id)?;
        if record.partition().is_some_and(|partition| partition.not_released) {
            tools.look_again.notify_one();
        }
    }
    Ok(left)
}

struct Unmaker<'a> {
    tools: &'a Tools,
    card: PciBusId,
    identity: &'a Identity,
    if_held: IfHeld,
}

impl Unmaker<'_> {
    fn unmake(&self, record: &HardwareRecord) -> Result<Left, PrepareError> {
        match record.known_change() {
            Some(HardwareChange::MigPartition(change)) => {
                let Some(instance) = self.find(record, &change)? else { return Ok(Left::Nothing) };
                let start = Instant::now();
                let destroyed = self.destroy(record, &change, &instance);
                let outcome = match &destroyed {
                    Ok(Left::Held) => "not_released",
                    Ok(_) => "success",
                    Err(error) => error.reason(),
                };
                self.tools.observer.hardware(HardwareWork::DestroyPartition, outcome, start.elapsed());
                if matches!(destroyed, Ok(Left::Nothing)) {
                    tracing::info!(device = record.id, gpu_instance = instance.id, elapsed = ?start.elapsed(),
                        "destroyed a partition");
                }
                destroyed
            }
            Some(HardwareChange::MigMode(change)) => self.restore_mode(record, change),
            Some(HardwareChange::MpsDaemon(change)) => {
                end_daemon(self.tools, record, &change).map(|()| Left::Nothing)
            }
            Some(HardwareChange::TimeSlice(change)) => {
                end_time_slices(self.tools, record, &change).map(|()| Left::Nothing)
            }
            // A record not understood by this build is never undone.
            None => Ok(Left::Records),
        }
    }

    /// The GPU instance described by the record, if present.
    fn find(
        &self,
        record: &HardwareRecord,
        change: &PartitionChange,
    ) -> Result<Option<GpuInstance>, PrepareError> {
        if self.identity.mig_mode != Some(true) {
            return Ok(None);
        }
        let instances = self
            .tools
            .nvml
            .gpu_instances(self.card)
            .map_err(|source| PrepareError::Hardware { device: record.id.clone(), source })?;
        Ok(instances.into_iter().find(|instance| is_of_change(instance, change)))
    }

    fn destroy(
        &self,
        record: &HardwareRecord,
        change: &PartitionChange,
        instance: &GpuInstance,
    ) -> Result<Left, PrepareError> {
        let nvml = &*self.tools.nvml;
        match destroy_partition(nvml, self.card, instance) {
            Ok(()) => Ok(Left::Nothing),
            Err(error) if error.is_card_gone() => Ok(Left::Records),
            Err(error) if error.is_in_use() => {
                let clients = clients(nvml, &self.tools.proc, self.card, Some(instance.id));
                if clients.are_unnamed() && self.if_held != IfHeld::Wait {
                    self.tell_held(record, change);
                    if self.if_held == IfHeld::Leave {
                        return Ok(Left::Held);
                    }
                }
                Err(PrepareError::PartitionBusy {
                    device: record.id.clone(),
                    uuid: self.identity.uuid.clone(),
                    clients: clients.to_string(),
                })
            }
            Err(source) => Err(PrepareError::Hardware { device: record.id.clone(), source }),
        }
    }

    /// Records a partition as not released by the driver, for discovery and for the next process.
    fn tell_held(&self, record: &HardwareRecord, change: &PartitionChange) {
        if change.not_released {
            return;
        }
        tracing::warn!(device = record.id, card = %self.card, "the driver does not destroy a partition that no claim needs, \
            because of a program that it does not name, mostly DCGM (dcgm-exporter, nv-hostengine): the devices in its place get \
            no claims until it is gone; it is tried again every half minute");
        let change = HardwareChange::MigPartition(PartitionChange { not_released: true, ..change.clone() });
        let record = HardwareRecord { change: change.to_map(), ..record.clone() };
        // A pod must be able to end even on a full disk. The record stays in any case, and with the record the partition's place.
        if let Err(error) = self.tools.journal.put_hardware_unsynced(&record) {
            tracing::warn!(device = record.id, %error, "cannot write down that a partition is not let go");
        }
        self.tools.look_again.notify_one();
    }

    /// Restores the mode, unless the change is permanent or somebody else now relies on the mode.
    fn restore_mode(&self, record: &HardwareRecord, change: ModeChange) -> Result<Left, PrepareError> {
        // `identity` was read before partitions were destroyed. Destroying partitions does not change the mode.
        if self.identity.mig_mode != Some(change.to) || (change.keep && record.stage == Stage::Complete) {
            return Ok(Left::Nothing);
        }
        if change.to {
            let instances = self.tools.nvml.gpu_instances(self.card);
            let instances =
                instances.map_err(|source| PrepareError::Hardware { device: record.id.clone(), source })?;
            if !instances.is_empty() {
                let own = self.tools.journal.hardware_of(self.card)?;
                let has_own = own
                    .iter()
                    .any(|entry| entry.record.as_ref().is_ok_and(|record| record.partition().is_some()));
                if has_own {
                    return Ok(Left::Records);
                }
                tracing::info!(card = %self.card, "MIG mode stays on: there are instances of someone else");
                return Ok(Left::Nothing);
            }
        }
        let start = Instant::now();
        let device = tessera_api::DeviceName::Card(self.card).to_string();
        let switched = switch_mode(self.tools, self.card, &self.identity.uuid, &device, change.from);
        let outcome = switched.as_ref().map_or_else(PrepareError::reason, |()| "success");
        self.tools.observer.hardware(HardwareWork::SwitchMode, outcome, start.elapsed());
        switched?;
        tracing::info!(card = %self.card, to = on_or_off(change.from), elapsed = ?start.elapsed(),
            "put MIG mode back");
        Ok(Left::Nothing)
    }
}

/// Ends a daemon no longer shared by any claim.
fn end_daemon(tools: &Tools, record: &HardwareRecord, change: &MpsDaemonChange) -> Result<(), PrepareError> {
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
fn end_time_slices(
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
