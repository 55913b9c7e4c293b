//! Devices as CUDA enumerates them.

use std::path::Path;

use crate::directory::capabilities;
use crate::hardware::board::Architecture;
use crate::hardware::mig::GpuInstanceProfile;
use crate::machine::{Card, Machine};
use crate::mig;
use crate::state::mig::Mig;
use crate::state::{Process, ProcessKind, State};

/// A device as CUDA sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its UUID.
    pub uuid: String,
    /// Index of its card.
    pub card: usize,
    /// Memory available to programs, bytes.
    pub memory: u64,
    /// Streaming multiprocessors, where known.
    pub multiprocessors: Option<u32>,
    /// Ids of GPU instance and compute instance, of a partition.
    pub instances: Option<(u32, u32)>,
    /// Compute slices of a partition, and of its whole card.
    pub slices: Option<(u32, u32)>,
}

impl Device {
    /// A process on this device.
    pub fn process(&self, pid: u32, used_memory_bytes: u64, kind: ProcessKind) -> Process {
        let mut process = Process::new(pid, used_memory_bytes, kind);
        process.gpu_instance = self.instances.map(|(gpu, _)| gpu);
        process.compute_instance = self.instances.map(|(_, compute)| compute);
        process
    }
}

/// Cores of a streaming multiprocessor, by compute capability (CUDA Programming Guide, Compute Capabilities).
fn cores_per_multiprocessor(major: u32, minor: u32) -> Option<u32> {
    Some(match (major, minor) {
        (6 | 8, 0) | (7, _) => 64,
        (6, 1 | 2) | (8, 6 | 7 | 9) | (9..=12, _) => 128,
        _ => return None,
    })
}

/// All devices of a machine, in NVML's order: partitions in the place of a card in MIG mode.
pub fn all(machine: &Machine, state: &State) -> Vec<Device> {
    let cards = machine.cards.iter().zip(&state.cards);
    cards
        .flat_map(
            |(card, state)| {
                if state.mig.enabled { partitions(card, &state.mig) } else { vec![whole(card)] }
            },
        )
        .collect()
}

fn partitions(card: &Card, mig: &Mig) -> Vec<Device> {
    mig.devices()
        .map(|(gpu, compute)| {
            let profile = card.mig.as_ref().and_then(|model| model.profile(gpu.profile));
            let share = |multiprocessors: u32| multiprocessors * compute.size / gpu_slices(profile).max(1);
            Device {
                uuid: mig::uuid(card, gpu, compute),
                card: card.index as usize,
                memory: profile.and_then(|profile| profile.memory_mib).unwrap_or(0) << 20,
                multiprocessors: profile.and_then(|profile| profile.multiprocessors).map(share),
                instances: Some((gpu.id, compute.id)),
                slices: card.mig.as_ref().map(|model| (compute.size, card_slices(&model.profiles))),
            }
        })
        .collect()
}

/// Compute slices of a card: the number in its largest profile.
fn card_slices(profiles: &[GpuInstanceProfile]) -> u32 {
    profiles.iter().map(|profile| profile.compute_slices).max().unwrap_or(1)
}

fn gpu_slices(profile: Option<&GpuInstanceProfile>) -> u32 {
    profile.map_or(1, |profile| profile.compute_slices)
}

fn whole(card: &Card) -> Device {
    let board = &card.board;
    let capability = board.compute_capability;
    let per = cores_per_multiprocessor(capability.major.unsigned_abs(), capability.minor.unsigned_abs());
    Device {
        uuid: card.uuid.clone(),
        card: card.index as usize,
        memory: (board.memory_total_mib - board.memory_reserved_mib.unwrap_or(0)) << 20,
        multiprocessors: board.cores.zip(per).map(|(cores, per)| cores / per),
        instances: None,
        slices: None,
    }
}

/// Devices whose nodes are in `/dev`: in a container, the granted ones. Without any node, as on a machine that
/// only exists in a directory, every device.
pub fn granted(machine: &Machine, devices: Vec<Device>) -> Vec<Device> {
    let is_seen = |device: &Device| {
        let minor = machine.cards[device.card].minor;
        let right = device.instances.is_none_or(|(gpu, compute)| {
            let node = capabilities::minor(minor, gpu, Some(compute));
            Path::new(&format!("/dev/nvidia-caps/nvidia-cap{node}")).exists()
        });
        right && Path::new(&format!("/dev/nvidia{minor}")).exists()
    };
    let seen: Vec<bool> = devices.iter().map(is_seen).collect();
    if !seen.contains(&true) {
        return devices;
    }
    devices.into_iter().zip(seen).filter(|(_, seen)| *seen).map(|(device, _)| device).collect()
}

/// Devices named by `CUDA_VISIBLE_DEVICES`, in its order, by number or by the beginning of a UUID. As in CUDA, the
/// first invalid name hides itself and all later ones.
pub fn visible(devices: Vec<Device>, variable: Option<&str>) -> Vec<Device> {
    let Some(variable) = variable else { return devices };
    let mut visible: Vec<Device> = Vec::new();
    for name in variable.split(',').map(str::trim) {
        let found = match name.parse::<usize>() {
            Ok(number) => devices.get(number),
            Err(_) if name.is_empty() => None,
            Err(_) => devices.iter().find(|device| device.uuid.starts_with(name)),
        };
        match found {
            Some(device) if !visible.contains(device) => visible.push(device.clone()),
            _ => break,
        }
    }
    visible
}

/// Most clients of an MPS server for one device: 16 before Volta, 48 since, 60 from CUDA 13.1 (NVIDIA's MPS
/// documentation). On a partition fewer, in proportion to its compute instance (MIG User Guide, "CUDA Multi-Process
/// Service": 48 on the whole card). NVIDIA's rounding is not documented; here the number is rounded down.
pub fn most_clients(machine: &Machine, device: &Device) -> usize {
    if machine.cards[device.card].board.architecture < Architecture::Volta {
        return 16;
    }
    let of_card = if has_static_partitions(machine) { 60 } else { 48 };
    device.slices.map_or(of_card, |(slices, of)| (of_card * slices as usize / of.max(1) as usize).max(1))
}

/// Whether the driver's MPS knows static SM partitions: from CUDA 13.1.
pub fn has_static_partitions(machine: &Machine) -> bool {
    numbers(&machine.driver.cuda_version).as_slice() >= [13, 1].as_slice()
}

/// Whether a fault affects only the clients of one static SM partition: from driver 610 (NVIDIA's MPS documentation,
/// "Using Static SM Partitioning").
pub fn contains_faults(machine: &Machine) -> bool {
    numbers(&machine.driver.version).as_slice() >= [610].as_slice()
}

fn numbers(version: &str) -> Vec<u32> {
    version.split('.').filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Options, build};

    fn machine(hardware: &str) -> Machine {
        build::build(&Options { hardware: hardware.into(), ..Options::default() }).expect("a machine")
    }

    #[test]
    fn visible_devices_follow_the_variable() {
        let devices = all(&machine("hgx-h100-80gb"), &State::new(8));
        let cards = |variable| {
            visible(devices.clone(), variable).iter().map(|device| device.card).collect::<Vec<_>>()
        };
        assert_eq!(cards(None).len(), 8);
        assert_eq!(cards(Some("3,1")), [3, 1]);
        let uuid = devices[5].uuid.clone();
        assert_eq!(cards(Some(&uuid)), [5]);
        assert_eq!(cards(Some("2,nonsense,1")), [2]);
        assert_eq!(cards(Some("")), [0; 0]);
    }

    #[test]
    fn multiprocessors_and_clients_are_those_of_the_field() {
        let machine = machine("hgx-h100-80gb");
        let device = &all(&machine, &State::new(8))[0];
        assert_eq!(device.multiprocessors, Some(132));
        assert_eq!(most_clients(&machine, device), 48);
        let mut newer = machine.clone();
        newer.driver.cuda_version = "13.1".into();
        assert_eq!(most_clients(&newer, device), 60);
    }
}
