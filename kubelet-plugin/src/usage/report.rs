//! The result of one sweep, for all readers.

use tessera_api::PciBusId;
use tessera_api::usage::{CardUsage, ClaimUsage, DeviceUsage, NodeUsage};
use tessera_inventory::machine::Card;
use tessera_journal::ClaimPod;

use super::look::Look;

/// Bytes of a MiB.
pub(super) const MIB: u64 = 1 << 20;

/// Activity of the node's cards and their use by claims, as of one sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Unix time, seconds.
    pub at: u64,
    /// The answering cards, by PCI address.
    pub cards: Vec<CardReport>,
    /// The prepared claims, by namespace and name.
    pub claims: Vec<ClaimReport>,
}

/// An answering card.
#[derive(Clone, Debug, PartialEq)]
pub struct CardReport {
    /// Facts from discovery.
    pub facts: Card,
    /// Its activity.
    pub look: Look,
    /// Allocated share of its memory, 0 to 1.
    pub allocated: f64,
}

/// A prepared claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimReport {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// The pods in the claim's `reservedFor` when the claim was prepared.
    pub pods: Vec<ClaimPod>,
    /// Its devices, each once.
    pub devices: Vec<DeviceReport>,
}

/// A claim's share of a device, and its use.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceReport {
    /// Name in the ResourceSlice.
    pub device: String,
    /// Its card.
    pub card: PciBusId,
    /// UUID of the card when the claim was prepared.
    pub card_uuid: String,
    /// Profile and id of the GPU instance, for a partition or a share of one.
    pub partition: Option<(String, Option<u32>)>,
    /// Granted memory, bytes.
    pub memory_granted: u64,
    /// Whether nothing keeps the claim's programs within the granted memory: those of a time-slice may take all of the card's.
    pub is_unlimited: bool,
    /// Granted multiprocessors, 0 to 1 of the card's.
    pub sm_granted: Option<f64>,
    /// Memory used by the claim's processes, bytes.
    pub memory_used: Option<u64>,
    /// Multiprocessors kept busy by the claim's processes, 0 to 1 of the card's.
    pub sm_activity: Option<f64>,
}

impl Report {
    /// The card at an address, if the card answered.
    #[must_use]
    pub fn card(&self, address: PciBusId) -> Option<&CardReport> {
        self.cards.iter().find(|card| card.facts.pci == address)
    }

    /// The report in the form of the contract with controller and CLI.
    #[must_use]
    pub fn node_usage(&self) -> NodeUsage {
        NodeUsage {
            at: self.at,
            cards: self.cards.iter().map(|card| (card.facts.pci, card.usage())).collect(),
            claims: self.claims.iter().map(ClaimReport::usage).collect(),
        }
    }
}

impl CardReport {
    /// Share of its multiprocessors that were busy, from the driver's best source: the card's counters, its partitions'
    /// counters, else the share of time with any running kernel.
    #[must_use]
    pub fn sm_activity(&self) -> Option<f64> {
        let of_partitions = || {
            let partitions = self.look.partitions.as_ref()?;
            let mut sum = 0.0;
            for partition in partitions {
                let profile = partition.profile.as_deref()?;
                sum += partition.activity.sm? * multiprocessor_share(&self.facts, profile)?;
            }
            Some(f64::min(sum, 1.0))
        };
        self.look.activity.sm.or_else(of_partitions).or(self.look.utilization)
    }

    fn usage(&self) -> CardUsage {
        CardUsage {
            uuid: self.facts.uuid.clone().unwrap_or_default(),
            product_name: self.facts.product_name.clone().unwrap_or_default(),
            memory_total_mib: self.facts.memory_bytes.unwrap_or_default() / MIB,
            memory_used_mib: self.look.memory.map(|memory| memory.used / MIB),
            sm_activity: self.sm_activity(),
            power_watts: self.look.power_watts,
            temperature_celsius: self.look.temperature_celsius,
            processes: self.look.processes.as_ref().map(|processes| processes.len() as u32),
        }
    }
}

impl ClaimReport {
    fn usage(&self) -> ClaimUsage {
        let device = |device: &DeviceReport| DeviceUsage {
            device: device.device.clone(),
            memory_granted_mib: device.memory_granted / MIB,
            sm_granted: device.sm_granted,
            memory_used_mib: device.memory_used.map(|bytes| bytes / MIB),
            sm_activity: device.sm_activity,
        };
        ClaimUsage {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            pods: self.pods.iter().map(|pod| pod.name.clone()).collect(),
            devices: self.devices.iter().map(device).collect(),
        }
    }
}

/// Multiprocessors of a profile, as a share of the card's largest profile: all multiprocessors available in MIG mode.
pub(super) fn multiprocessor_share(card: &Card, profile: &str) -> Option<f64> {
    let profiles = &card.mig.as_ref()?.profiles;
    let most = profiles.iter().map(|profile| profile.multiprocessors).max().filter(|most| *most > 0)?;
    let of_profile = profiles.iter().find(|known| known.name == profile)?.multiprocessors;
    Some(f64::from(of_profile) / f64::from(most))
}
