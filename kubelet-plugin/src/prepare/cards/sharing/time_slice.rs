//! Cards shared by time: any number of processes take turns. Blocks: for blocking threads only.

use std::time::Duration;

use tessera_api::PciBusId;
use tessera_nvml::{ComputeMode, Nvml};

use super::Sharing;
use crate::nvidia_smi::{NvidiaSmi, NvidiaSmiError};
use crate::prepare::PrepareError;
use crate::prepare::cards::record_ids::device_of_share;
use tessera_journal::{HardwareRecord, Journal, TimeSliceChange};

/// Time limit of the driver's tool. On an idle card the tool first initialises the card, for seconds.
const PATIENCE: Duration = Duration::from_secs(20);

impl Sharing {
    /// Lets any number of processes use the card in turns of the recorded length. Records the earlier settings first.
    pub fn set_time_slice(
        &self,
        journal: &Journal,
        nvml: &dyn Nvml,
        record: &mut HardwareRecord,
        change: &mut TimeSliceChange,
    ) -> Result<(), PrepareError> {
        let (card, device) = (record.card, device_of_share(&record.id).to_owned());
        let hardware = |source| PrepareError::Hardware { device: device.clone(), source };
        let mode = nvml.card(card).and_then(|card| card.compute_mode).map_err(hardware)?;
        if let Some(mode) = mode.filter(|mode| *mode != ComputeMode::Default) {
            change.compute_mode_before = Some(name(mode).to_owned());
            record.change = tessera_journal::HardwareChange::TimeSlice(change.clone()).to_map();
            journal.put_hardware_unsynced(record)?;
            nvml.set_compute_mode(card, ComputeMode::Default).map_err(hardware)?;
        }
        // Nothing to set: the driver's own length applies already.
        if change.interval == 0 {
            return Ok(());
        }
        let set = self.set_interval(&device, card, &record.card_uuid, change.interval);
        if set.as_ref().is_err_and(|unset| !unset.is_perhaps_set) {
            // Nothing to put back later, with a tool possibly missing on the node.
            change.interval = 0;
            record.change = tessera_journal::HardwareChange::TimeSlice(change.clone()).to_map();
            journal.put_hardware_unsynced(record)?;
        }
        set.map_err(|unset| unset.of(&device))
    }

    /// Restores the earlier settings, except those changed by somebody else since.
    pub fn put_back_time_slice(
        &self,
        nvml: &dyn Nvml,
        record: &HardwareRecord,
        change: &TimeSliceChange,
    ) -> Result<(), PrepareError> {
        let device = device_of_share(&record.id);
        let hardware = |source| PrepareError::Hardware { device: device.to_owned(), source };
        if change.interval != 0 {
            let set = self.set_interval(device, record.card, &record.card_uuid, 0);
            set.map_err(|unset| unset.of(device))?;
        }
        if let Some(before) = change.compute_mode_before.as_deref().and_then(mode_named) {
            let card = record.card;
            let now = nvml.card(card).and_then(|card| card.compute_mode).map_err(hardware)?;
            if now == Some(ComputeMode::Default) {
                nvml.set_compute_mode(card, before).map_err(hardware)?;
            }
        }
        Ok(())
    }

    /// Sets the interval with `nvidia-smi`, because NVML has no function for the interval.
    fn set_interval(&self, device: &str, card: PciBusId, uuid: &str, interval: u32) -> Result<(), Unset> {
        let arguments = ["compute-policy", "-i", uuid, "--set-timeslice", &interval.to_string()];
        match NvidiaSmi::new(self.installed.clone()).run(&arguments, PATIENCE) {
            Ok(_) => {
                tracing::debug!(device, %card, interval, "set the time-slice");
                Ok(())
            }
            Err(error @ (NvidiaSmiError::Late(_) | NvidiaSmiError::Lost(_))) => {
                Err(Unset { reason: error.to_string(), is_perhaps_set: true })
            }
            Err(error @ NvidiaSmiError::Missing { .. }) => {
                let reason = format!(
                    "{error}, which sets time-slices; install the driver's utilities, or leave the interval out where they are \
                     not to be had"
                );
                Err(Unset { reason, is_perhaps_set: false })
            }
            Err(error) => Err(Unset { reason: error.to_string(), is_perhaps_set: false }),
        }
    }
}

/// The interval was not set.
struct Unset {
    reason: String,
    /// Unknown, because the tool did not finish.
    is_perhaps_set: bool,
}

impl Unset {
    fn of(self, device: &str) -> PrepareError {
        PrepareError::TimeSlice { device: device.to_owned(), reason: self.reason }
    }
}

const fn name(mode: ComputeMode) -> &'static str {
    match mode {
        ComputeMode::Default => "Default",
        ComputeMode::ExclusiveThread => "ExclusiveThread",
        ComputeMode::Prohibited => "Prohibited",
        ComputeMode::ExclusiveProcess => "ExclusiveProcess",
    }
}

fn mode_named(text: &str) -> Option<ComputeMode> {
    use ComputeMode::{Default, ExclusiveProcess, ExclusiveThread, Prohibited};
    [Default, ExclusiveThread, Prohibited, ExclusiveProcess].into_iter().find(|mode| name(*mode) == text)
}
