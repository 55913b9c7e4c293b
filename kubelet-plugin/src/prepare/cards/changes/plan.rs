//! Step 6: plans the changes of one card for one claim.

mod partition;
mod share;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Map;
use tessera_api::config::MigModeAfterUse;
use tessera_api::{DeviceName, PciBusId};
use tessera_card::{describe, is_of_change, switches_at_once};
use tessera_nvml::{GpuInstance, Identity, NvmlError};

use super::Tools;
use super::unmake::{IfHeld, Left, unmake};
use crate::prepare::PrepareError;
use crate::prepare::cards::record_ids::{device_of_share, mode_id, partition_id};
use crate::prepare::claim::DeviceNeed;
use tessera_journal::{
    HardwareChange, HardwareRecord, ModeChange, PartitionChange, PartitionInstances, Stage,
};

pub(super) use share::ShareMake;

/// Changes of one card for one claim.
#[derive(Debug)]
pub(in crate::prepare) struct CardPlan {
    pub(super) card: PciBusId,
    pub(super) identity: Identity,
    /// One of the claim's devices on the card, for error messages.
    pub(super) device: String,
    /// The intent to switch the MIG mode.
    pub(super) switch: Option<HardwareRecord>,
    /// Changes to make, in this order.
    pub(super) makes: Vec<Make>,
    /// Shares to make afterwards.
    pub(super) shares: Vec<ShareMake>,
    /// For each of the claim's devices on the card, by its CDI name.
    pub found: BTreeMap<String, Found>,
}

/// A partition to make.
#[derive(Debug)]
pub(super) struct Make {
    pub device: String,
    pub record: HardwareRecord,
    pub change: PartitionChange,
    pub compute_slices: Option<u32>,
}

/// Instances and records referenced by a device of the claim.
#[derive(Clone, Debug, Default)]
pub(in crate::prepare) struct Found {
    /// Ids of the hardware records.
    pub hardware: Vec<String>,
    /// The instances of an existing partition; `None` for a partition still to be made, and for a whole card.
    pub instances: Option<PartitionInstances>,
}

/// Plans the changes of a card to make the devices in `needs` (all of the claim's on this card) usable. Waste of earlier claims
/// in their place is undone; nothing else is changed. Blocks on driver calls.
///
/// `references` are the ids of records referenced by other claims, `own` the ids already referenced by the claim itself. Existing
/// changes in `own` are used as they are; missing ones are made again.
///
/// # Errors
/// [`PrepareError::ForeignInstance`], [`PrepareError::NoPartition`], [`PrepareError::MigMode`],
/// [`PrepareError::NotReleased`], [`PrepareError::PartitionBusy`], [`PrepareError::CardBusy`], [`PrepareError::Hardware`],
/// [`PrepareError::Journal`]
pub(in crate::prepare) fn plan(
    tools: &Tools,
    card: PciBusId,
    needs: &[DeviceNeed],
    references: &BTreeSet<String>,
    own: &BTreeSet<String>,
) -> Result<Option<CardPlan>, PrepareError> {
    let Some(first) = needs.first() else { return Ok(None) };
    let mut planner = Planner { tools, card, device: &first.name, identity: first.identity.clone() };
    let mut records = planner.records()?;
    let held: Vec<&DeviceNeed> = needs.iter().filter(|need| !need.allocated.admin_access).collect();
    let whole = held.iter().find(|need| need.partition.is_none());

    let in_the_way = |record: &HardwareRecord| match record.known_change() {
        Some(HardwareChange::MigPartition(there)) => held.iter().any(|need| {
            need.partition.as_ref().is_none_or(|partition| partition.placement.overlaps(there.placement))
        }),
        Some(HardwareChange::MigMode(mode)) => mode.to == whole.is_some(),
        // A share without a claim holds the card or a partition of the card. One belonging to a single claim has the limits of
        // that claim.
        Some(HardwareChange::MpsDaemon(_) | HardwareChange::TimeSlice(_)) => {
            held.iter().any(|need| need.name != record.id)
        }
        None => false,
    };
    let own: Vec<&HardwareRecord> = records.iter().filter(|record| own.contains(&record.id)).collect();
    let gone = planner.gone(&own)?;
    let is_waste = |record: &HardwareRecord| match own.iter().any(|own| own.id == record.id) {
        true => gone.contains(&record.id),
        false => in_the_way(record),
    };
    let waste: Vec<String> = records
        .iter()
        .filter(|record| !references.contains(&record.id) && is_waste(record))
        .map(|record| record.id.clone())
        .collect();
    if !waste.is_empty() {
        if unmake(tools, card, &waste, IfHeld::Leave)? == Left::Held {
            return Err(planner.not_released(&waste, &held)?);
        }
        planner.identity = tools.nvml.identify(card).map_err(|error| planner.hardware(error))?;
        records = planner.records()?;
    }
    planner.plan(needs, whole.map(|need| &*need.name), &records).map(Some)
}

struct Planner<'a> {
    tools: &'a Tools,
    card: PciBusId,
    device: &'a str,
    identity: Identity,
}

impl Planner<'_> {
    /// The card's records still matching the card.
    fn records(&self) -> Result<Vec<HardwareRecord>, PrepareError> {
        let records =
            self.tools.journal.hardware_of(self.card)?.into_iter().filter_map(|entry| entry.record.ok());
        let is_present = |record: &HardwareRecord| {
            record.boot_id == *self.tools.journal.boot_id() && record.card_uuid == self.identity.uuid
        };
        Ok(records.filter(is_present).collect())
    }

    /// The error for an item of the card's `waste` staying in the place of one of the `needs`.
    fn not_released(&self, waste: &[String], needs: &[&DeviceNeed]) -> Result<PrepareError, PrepareError> {
        let records = self.records()?.into_iter().filter(|record| waste.contains(&record.id));
        let mut partitions = records.filter_map(|record| Some((record.partition()?, record.id)));
        let (place, partition) = partitions.next().map(|(change, id)| (Some(change.placement), id)).unzip();
        let is_there = |need: &&&DeviceNeed| {
            place
                .flatten()
                .zip(need.partition.as_ref())
                .is_none_or(|(place, need)| need.placement.overlaps(place))
        };
        Ok(PrepareError::NotReleased {
            device: needs.iter().find(is_there).map_or(self.device, |need| &need.name).to_owned(),
            partition: partition.unwrap_or_default(),
            uuid: self.identity.uuid.clone(),
        })
    }

    fn instances(&self) -> Result<Vec<GpuInstance>, PrepareError> {
        match self.identity.mig_mode {
            Some(true) => {
                let instances = self.tools.nvml.gpu_instances(self.card);
                instances.map_err(|error| self.hardware(error))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The claim's own records of partitions missing or never finished, and of shares of such partitions.
    fn gone(&self, own: &[&HardwareRecord]) -> Result<BTreeSet<String>, PrepareError> {
        let partitions: Vec<(&str, PartitionChange)> =
            own.iter().filter_map(|record| Some((&*record.id, record.partition()?))).collect();
        if partitions.is_empty() {
            return Ok(BTreeSet::new());
        }
        let instances = self.instances()?;
        let is_gone = |change: &PartitionChange| {
            change.made.is_none() || !instances.iter().any(|instance| is_of_change(instance, change))
        };
        let gone: BTreeSet<&str> =
            partitions.iter().filter(|(_, change)| is_gone(change)).map(|(id, _)| *id).collect();
        let is_on_one = |record: &&&HardwareRecord| {
            let device = device_of_share(&record.id).parse::<DeviceName>().ok();
            let partition = device.as_ref().and_then(DeviceName::partition).map(partition_id);
            partition.is_some_and(|partition| gone.contains(&*partition))
        };
        Ok(own.iter().filter(is_on_one).map(|record| record.id.clone()).collect())
    }

    fn plan(
        &self,
        needs: &[DeviceNeed],
        whole: Option<&str>,
        records: &[HardwareRecord],
    ) -> Result<CardPlan, PrepareError> {
        let instances = self.instances()?;
        let mut plan = CardPlan {
            card: self.card,
            identity: self.identity.clone(),
            device: self.device.to_owned(),
            switch: None,
            makes: Vec::new(),
            shares: Vec::new(),
            found: BTreeMap::new(),
        };
        if let Some(device) = whole {
            self.free_whole(device, &instances, &mut plan)?;
        }
        for need in needs {
            let mut found = plan.found.remove(&need.allocated.cdi_name).unwrap_or_default();
            if let Some(partition) = &need.partition {
                self.find(need, partition, &instances, records, &mut plan, &mut found)?;
            }
            self.share(need, records, &mut plan, &mut found)?;
            plan.found.insert(need.allocated.cdi_name.clone(), found);
        }
        self.switch_on(needs, records, &mut plan)?;
        let mode = plan.switch.as_ref().map(|switch| switch.id.clone());
        let switched =
            |record: &&HardwareRecord| record.mode().is_some_and(|mode| mode.to == whole.is_none());
        let mode = mode.or_else(|| records.iter().find(switched).map(|record| record.id.clone()));
        if let Some(mode) = mode {
            // These depend on the mode: everything made by this driver, and a whole card requiring the mode off.
            for need in needs {
                let is_held_whole = need.partition.is_none() && !need.allocated.admin_access;
                if let Some(found) = plan.found.get_mut(&need.allocated.cdi_name)
                    && (is_held_whole || !found.hardware.is_empty())
                    && !found.hardware.contains(&mode)
                {
                    found.hardware.push(mode.clone());
                }
            }
        }
        Ok(plan)
    }

    /// Plans to make a share, or to change the limits of its daemon.
    fn share(
        &self,
        need: &DeviceNeed,
        records: &[HardwareRecord],
        plan: &mut CardPlan,
        found: &mut Found,
    ) -> Result<(), PrepareError> {
        let intent = |id, change| self.record(id, change);
        let share = ShareMake::plan(self.tools, need, found.instances.as_ref(), records, intent)?;
        let Some(mut share) = share else { return Ok(()) };
        found.hardware.push(share.record.id.clone());
        let is_planned = plan.shares.iter().any(|planned| planned.record.id == share.record.id);
        // A time-slice has no limits, so one entry serves all shares of the device.
        if is_planned && share.limits.is_none() {
            return Ok(());
        }
        share.is_new &= !is_planned;
        plan.shares.push(share);
        Ok(())
    }

    /// Checks or plans for MIG mode to be off on a card claimed whole.
    fn free_whole(
        &self,
        device: &str,
        instances: &[GpuInstance],
        plan: &mut CardPlan,
    ) -> Result<(), PrepareError> {
        if self.identity.mig_mode != Some(true) {
            return Ok(());
        }
        let (device, uuid) = (device.to_owned(), self.identity.uuid.clone());
        if !instances.is_empty() {
            let instances = self.describe(&instances.iter().collect::<Vec<_>>());
            return Err(PrepareError::ForeignInstance { device, uuid, instances });
        }
        // If unknown, treat the card as an older one, whose mode is not switched.
        if !switches_at_once(&*self.tools.nvml, self.card).unwrap_or(false) {
            return Err(PrepareError::MigMode { device, uuid });
        }
        plan.switch = Some(self.mode_record(ModeChange { from: true, to: false, keep: false }));
        Ok(())
    }

    /// Checks or plans for MIG mode to be on for a card about to get partitions.
    fn switch_on(
        &self,
        needs: &[DeviceNeed],
        records: &[HardwareRecord],
        plan: &mut CardPlan,
    ) -> Result<(), PrepareError> {
        let keeps =
            |need: &DeviceNeed| need.allocated.settings.mig.mig_mode_after_use == MigModeAfterUse::Keep;
        let keep = needs.iter().any(|need| need.partition.is_some() && keeps(need));
        if plan.makes.is_empty() {
            return Ok(());
        }
        let known = records.iter().find_map(|record| Some((record, record.mode()?)));
        match (self.identity.mig_mode, known) {
            (None, _) => {
                let (device, uuid) = (self.device.to_owned(), self.identity.uuid.clone());
                Err(PrepareError::NoMig { device, uuid })
            }
            (Some(true), Some((record, mode))) if keep && !mode.keep => {
                let change = HardwareChange::MigMode(ModeChange { keep, ..mode }).to_map();
                self.tools.journal.put_hardware_unsynced(&HardwareRecord { change, ..record.clone() })?;
                Ok(())
            }
            (Some(true), _) => Ok(()),
            (Some(false), _) => {
                plan.switch = Some(self.mode_record(ModeChange { from: false, to: true, keep }));
                Ok(())
            }
        }
    }

    fn mode_record(&self, change: ModeChange) -> HardwareRecord {
        self.record(mode_id(self.card), HardwareChange::MigMode(change))
    }

    fn record(&self, id: String, change: HardwareChange) -> HardwareRecord {
        HardwareRecord {
            version: HardwareRecord::VERSION,
            id,
            card: self.card,
            card_uuid: self.identity.uuid.clone(),
            boot_id: self.tools.journal.boot_id().clone(),
            stage: Stage::Intent,
            change: change.to_map(),
            other: Map::new(),
        }
    }

    fn describe(&self, instances: &[&GpuInstance]) -> String {
        let profiles = self.tools.nvml.gpu_instance_profiles(self.card);
        describe(instances, &profiles.ok().flatten().unwrap_or_default())
    }

    fn hardware(&self, source: NvmlError) -> PrepareError {
        PrepareError::Hardware { device: self.device.to_owned(), source }
    }
}

impl CardPlan {
    /// Records to put on the disk before hardware is touched.
    pub fn intents(&self) -> impl Iterator<Item = &HardwareRecord> {
        let shares = self.shares.iter().filter(|share| share.is_new).map(|share| &share.record);
        self.switch.iter().chain(self.makes.iter().map(|make| &make.record)).chain(shares)
    }

    /// Whether there is anything to do.
    pub fn has_work(&self) -> bool {
        self.switch.is_some() || !self.makes.is_empty() || !self.shares.is_empty()
    }
}
