//! Sets up shares of cards and partitions: MPS daemons through mps-host, time-slices through the driver's own tool.
//!
//! A shared device has one hardware record, named after the device, as long as any claim has a share. Each MPS share changes the
//! daemon's limits, so every Prepare of one asks mps-host. A time-slice uses the settings already made.
//!
//! The pods of a claim holding a device alone may share the device in the same ways. The record is named after the device too,
//! and never belongs to another claim.

mod mps;
mod time_slice;

use std::path::PathBuf;
use std::sync::Arc;

use tessera_api::offer::TimeSliceInterval;
use tessera_api::{DeviceName, Offer, PciBusId};
use tessera_inventory::{Machine, StaticPartitions};
use tessera_nvml::DriverRoot;
use tokio::sync::watch;

use crate::gpu_pools::Resolution;
use crate::prepare::claim::{DeviceNeed, OwnSharing};
use crate::prepare::{PrepareError, PrepareOptions};
use tessera_journal::{HardwareChange, MpsDaemonChange, TimeSliceChange};
use tessera_mps_host::client::MpsHost;

pub(in crate::prepare) use mps::Share;

/// The tools for making shares.
#[derive(Clone, Debug)]
pub(in crate::prepare) struct Sharing {
    mps: MpsHost,
    mps_directory: PathBuf,
    installed: DriverRoot,
    resolution: watch::Receiver<Option<Arc<Resolution>>>,
    published: watch::Receiver<Option<Arc<Machine>>>,
}

impl Sharing {
    pub fn new(options: &PrepareOptions, published: watch::Receiver<Option<Arc<Machine>>>) -> Self {
        Self {
            mps: MpsHost::new(&options.mps_directory),
            mps_directory: options.mps_directory.clone(),
            installed: options.roots.installed(),
            resolution: options.resolution.clone(),
            published,
        }
    }

    /// The change to record before a device is shared; `None` for a device not shared.
    ///
    /// # Errors
    /// [`PrepareError::Mps`], a passing error, while the node's kind of shares is unknown; [`PrepareError::TimeSlice`] if the
    /// card does not support the time-slice length in its GpuPool.
    pub fn change(&self, need: &DeviceNeed) -> Result<Option<HardwareChange>, PrepareError> {
        let slices = |interval| HardwareChange::TimeSlice(TimeSliceChange { interval, ..Default::default() });
        Ok(match (&need.own_sharing, &need.allocated.device) {
            (Some(OwnSharing::TimeSlicing { interval }), _) => Some(slices(*interval)),
            (Some(OwnSharing::Mps(own)), _) => Some(HardwareChange::MpsDaemon(MpsDaemonChange {
                device_uuid: own.first_card().map(str::to_owned),
                owner: Some(own.owner.clone()),
                static_partitions: false,
            })),
            (None, DeviceName::Mps(card)) => Some(HardwareChange::MpsDaemon(MpsDaemonChange {
                device_uuid: Some(need.identity.uuid.clone()),
                owner: None,
                static_partitions: self.has_static_partitions(&need.name, *card)?,
            })),
            // The UUID is unknown until the partition is made.
            (None, DeviceName::PartitionMps(_)) => {
                Some(HardwareChange::MpsDaemon(MpsDaemonChange::default()))
            }
            (None, DeviceName::TimeSlice(card)) => {
                let interval = self.interval(*card);
                if interval != TimeSliceInterval::Default && need.has_time_slice_lengths == Some(false) {
                    return Err(PrepareError::TimeSlice {
                        device: need.name.clone(),
                        reason: format!(
                            "the card's GpuPool says timeSlicing.interval {}, and slices of the card {} have the \
                             driver's own length only, so that it is not offered any more: leave the interval out of the \
                             pool, or delete the claim, so that another card is allocated",
                            interval.as_str(),
                            need.identity.uuid
                        ),
                    });
                }
                Some(slices(interval.number()))
            }
            _ => None,
        })
    }

    /// Whether shares of a card have multiprocessors of their own, as the card is published.
    fn has_static_partitions(&self, device: &str, card: PciBusId) -> Result<bool, PrepareError> {
        let failed =
            |reason: String, may_pass| Err(PrepareError::Mps { device: device.to_owned(), reason, may_pass });
        let Some(offer) = self.offer(card) else {
            return failed("what is offered of its card is not known yet".to_owned(), true);
        };
        if !offer.sharing.mps.as_ref().is_some_and(|mps| mps.static_partitions) {
            return Ok(false);
        }
        let machine = self.published.borrow().clone();
        let known = machine.as_ref().and_then(|machine| machine.cards.iter().find(|known| known.pci == card));
        let (Some(machine), Some(card)) = (&machine, known) else {
            return failed("the facts of its card are not known yet".to_owned(), true);
        };
        match StaticPartitions::of(card, machine.cuda_driver_version) {
            Ok(_) => Ok(true),
            Err(reason) => failed(format!("sharing.mps.staticPartitions is on: {reason}"), false),
        }
    }

    /// How long each claim runs before the next on a card shared by time.
    fn interval(&self, card: PciBusId) -> TimeSliceInterval {
        let offer = self.offer(card);
        let slicing = offer.as_ref().and_then(|offer| offer.sharing.time_slicing.as_ref());
        slicing.map(|slicing| slicing.interval).unwrap_or_default()
    }

    /// The offer of a card, once known.
    fn offer(&self, card: PciBusId) -> Option<Arc<Offer>> {
        let resolution = self.resolution.borrow();
        resolution.as_ref().map(|resolution| Arc::clone(&resolution.offers.of(card).offer))
    }
}
