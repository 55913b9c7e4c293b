//! Devices held by one claim alone and shared by its pods and containers.

use std::collections::BTreeMap;

use tessera_api::PciBusId;
use tessera_api::config::MpsSharing;

use tessera_journal::ClaimMps;
use tessera_mps_host::protocol::{Ensure, OtherDevice, Settings};

/// How the pods of a claim share a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::prepare) enum OwnSharing {
    /// By time.
    TimeSlicing {
        /// Number of the interval in `nvidia-smi compute-policy`.
        interval: u32,
    },
    /// By MPS.
    Mps(OwnDaemon),
}

/// An MPS daemon of one claim. The daemon serves all cards of one configuration object, because a process can be a client of only
/// one daemon; or one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::prepare) struct OwnDaemon {
    /// UID of the claim.
    pub owner: String,
    /// Limits of its clients.
    pub limits: MpsSharing,
    /// Its cards by UUID, each with its memory in MiB if known; empty for a partition.
    pub cards: BTreeMap<String, (PciBusId, Option<u64>)>,
    /// The partition's card, and its memory in MiB if known.
    pub partition: Option<(PciBusId, Option<u64>)>,
}

impl OwnDaemon {
    /// The daemon's UUID in mps-host, if the daemon serves cards.
    pub fn first_card(&self) -> Option<&str> {
        self.cards.keys().next().map(String::as_str)
    }

    /// The daemon's UUID in mps-host; `partition` is the UUID of the partition, if the daemon serves one.
    pub fn key<'a>(&'a self, partition: &'a str) -> &'a str {
        self.first_card().unwrap_or(partition)
    }

    /// Memory limit of each process on each device, MiB, in the order of the devices.
    pub fn memory_limits(&self, partition: &str) -> Result<Vec<Option<u64>>, String> {
        let devices: Vec<(&str, Option<u64>)> = match self.partition {
            Some((_, memory)) => vec![(partition, memory)],
            None => self.cards.iter().map(|(uuid, (_, memory))| (uuid.as_str(), *memory)).collect(),
        };
        let uuids: Vec<&str> = devices.iter().map(|(uuid, _)| *uuid).collect();
        let limits = self.limits.memory_limits(&uuids).map_err(|error| error.to_string())?;
        let held = |(limit, (uuid, memory)): (Option<u64>, (&str, Option<u64>))| match (limit, memory) {
            (Some(limit), Some(memory)) if limit > memory && self.limits.may_exceed_device => Ok(None),
            (Some(limit), Some(memory)) if limit > memory => Err(format!(
                "its configuration limits each process to {limit}Mi of memory, and {uuid} has {memory}Mi: say less, or leave \
                 the limit out"
            )),
            _ => Ok(limit),
        };
        limits.into_iter().zip(devices).map(held).collect()
    }

    /// The request to mps-host. `partition` is the UUID of the partition, if the daemon serves one.
    pub fn wish(&self, partition: &str) -> Result<Ensure, String> {
        let limits = self.memory_limits(partition)?;
        let uuid = |uuid: &str| uuid.parse().map_err(|error| format!("{error}"));
        let limit = |index: usize| limits.get(index).copied().flatten();
        let card = self.cards.values().next().or(self.partition.as_ref()).map(|(card, _)| *card);
        let card = card.ok_or_else(|| "there is no card".to_owned())?;
        let settings = Settings {
            memory_limit_mib: limit(0),
            active_thread_percentage: self.limits.active_thread_percentage,
        };
        let mut wish = Ensure::of_shares(uuid(self.key(partition))?, card, settings);
        wish.owner = Some(self.owner.clone());
        for (index, (other, (card, _))) in self.cards.iter().enumerate().skip(1) {
            let memory_limit_mib = limit(index);
            wish.others.push(OtherDevice { device: uuid(other)?, card: *card, memory_limit_mib });
        }
        Ok(wish)
    }

    /// In the form of a claim's record for one device. The environment names devices by position only, and the devices of a
    /// container are unknown here, so with several devices only the daemon's limits apply.
    pub fn to_record(&self, wish: &Ensure) -> ClaimMps {
        ClaimMps {
            memory_limit_mib: wish.settings.memory_limit_mib.filter(|_| wish.others.is_empty()),
            active_thread_percentage: wish.settings.active_thread_percentage,
            ..ClaimMps::default()
        }
    }
}
