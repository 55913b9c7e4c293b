//! Shares of cards and partitions, made real: MPS daemons by mps-host, time-slices by the driver's own tool.
//!
//! A shared device has one hardware record, named after it, as long as a claim has a share of it. A share of MPS changes
//! what the daemon allows, so that every Prepare of one asks mps-host; whoever takes a share of time comes to what is set
//! already.
//!
//! A device that one claim holds for itself may be shared by the pods of that claim, in the same ways: its record is named
//! after the device too, and is never another claim's.

mod limits;
mod mps;
mod own;
mod time_slice;

use std::path::PathBuf;
use std::sync::Arc;

use tessera_api::node_config::TimeSliceInterval;
use tessera_api::{DeviceName, NodeConfig};
use tokio::sync::watch;

use super::PrepareOptions;
use super::need::DeviceNeed;
use crate::journal::{HardwareChange, MpsDaemonChange, TimeSliceChange};
use crate::mps::client::MpsHost;

pub(super) use limits::ShareLimits;
pub(super) use own::{OwnDaemon, OwnSharing, own_sharing};

/// What shares are made with.
#[derive(Clone, Debug)]
pub(super) struct Sharing {
    mps: MpsHost,
    driver_root: PathBuf,
    node_config: watch::Receiver<Option<Arc<NodeConfig>>>,
}

impl Sharing {
    pub fn new(options: &PrepareOptions) -> Self {
        Self {
            mps: MpsHost::new(&options.mps_directory),
            driver_root: options.roots.driver.clone(),
            node_config: options.node_config.clone(),
        }
    }

    /// What must be recorded before a device is shared; none where it is not.
    pub fn change(&self, need: &DeviceNeed) -> Option<HardwareChange> {
        let daemon =
            |device_uuid, owner| Some(HardwareChange::MpsDaemon(MpsDaemonChange { device_uuid, owner }));
        match &need.own_sharing {
            Some(OwnSharing::TimeSlicing { interval }) => {
                return Some(HardwareChange::TimeSlice(TimeSliceChange {
                    interval: *interval,
                    compute_mode_before: None,
                }));
            }
            Some(OwnSharing::Mps(own)) => {
                return daemon(own.first_card().map(str::to_owned), Some(own.owner.clone()));
            }
            None => {}
        }
        match need.allocated.device {
            DeviceName::Mps(_) => daemon(Some(need.identity.uuid.clone()), None),
            // Its UUID is not known before it is made.
            DeviceName::PartitionMps(_) => daemon(None, None),
            DeviceName::TimeSlice(_) => Some(HardwareChange::TimeSlice(TimeSliceChange {
                interval: self.interval().number(),
                compute_mode_before: None,
            })),
            _ => None,
        }
    }

    /// How long each claim runs before the next on a card that is shared by time.
    fn interval(&self) -> TimeSliceInterval {
        let config = self.node_config.borrow();
        let slicing = config.as_ref().and_then(|config| config.sharing.time_slicing.as_ref());
        slicing.map(|slicing| slicing.interval).unwrap_or_default()
    }
}
