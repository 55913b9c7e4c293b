//! Undoes the records of a card.

use std::time::Instant;

use tessera_api::PciBusId;
use tessera_card::{clients, destroy_partition, is_of_change};
use tessera_nvml::{GpuInstance, Identity};

use super::make::switch_mode;
use super::share::{end_daemon, end_time_slices};
use super::{Tools, on_or_off};
use crate::prepare::{HardwareWork, PrepareError};
use tessera_journal::{HardwareChange, HardwareRecord, ModeChange, PartitionChange, Stage};

/// Result of undoing records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prepare) enum Left {
    /// All of it is undone.
    Nothing,
    /// The card does not answer: its records stay and are undone when it is back.
    Records,
    /// A partition that its driver does not destroy stays, with its record, which says so.
    Held,
}

/// What is done about a partition that the driver does not destroy because it is in use, where it names no program that
/// uses it: a monitor, such as DCGM, which may have it open for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prepare) enum IfHeld {
    /// That is an error.
    Wait,
    /// That is an error, and its record says so, so that its devices get no new claims.
    Tell,
    /// Its record says so, and the claim that it was made for is done with it.
    Leave,
}

/// Undoes the changes in records of a card, as far as they exist, and removes the records: shares first, then
/// partitions, then the mode. Blocks, for seconds.
///
/// What was made in another boot or on another card is gone, so only its record is removed. Touches nothing that it
/// does not recognise as made by the record's change.
///
/// `if_held` says what is done about a partition of which the driver does not say who holds it.
///
/// # Errors
/// [`PrepareError::PartitionBusy`] and [`PrepareError::CardBusy`] while programs hold it, [`PrepareError::Mps`] and
/// [`PrepareError::TimeSlice`] if a share can't be ended, [`PrepareError::Hardware`], [`PrepareError::Journal`]. The
/// record of what could not be undone stays.
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
        let is_of_now = record.boot_id == *tools.boot();
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
            // A record that this build does not understand is never undone.
            None => Ok(Left::Records),
        }
    }

    /// The GPU instance that the record describes, if it exists.
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

    /// Writes down that the driver does not let go of a partition, for discovery and for the next process.
    fn tell_held(&self, record: &HardwareRecord, change: &PartitionChange) {
        if change.not_released {
            return;
        }
        tracing::warn!(device = record.id, card = %self.card, "the driver does not destroy a partition that no claim needs, \
            because of a program that it does not name, mostly DCGM (dcgm-exporter, nv-hostengine): the devices in its place get \
            no claims until it is gone; it is tried again every half minute");
        let change = HardwareChange::MigPartition(PartitionChange { not_released: true, ..change.clone() });
        let record = HardwareRecord { change: change.to_map(), ..record.clone() };
        // A pod must be able to end even on a full disk. The record stays in any case, and with it the partition's place.
        if let Err(error) = self.tools.journal.put_hardware_unsynced(&record) {
            tracing::warn!(device = record.id, %error, "cannot write down that a partition is not let go");
        }
        self.tools.look_again.notify_one();
    }

    /// Restores the mode, unless it is meant to stay or somebody else now relies on it.
    fn restore_mode(&self, record: &HardwareRecord, change: ModeChange) -> Result<Left, PrepareError> {
        // `identity` was read before partitions were destroyed, which does not change the mode.
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
