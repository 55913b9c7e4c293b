use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use tessera_nvml::{
    Architecture, Card, ComputeInstance, ComputeInstanceProfile, ComputeMode, GpuInstance,
    GpuInstanceProfile, Identity, MigMode, MigModeSwitch, Nvml, NvmlError, PciAddress, Placement, Process,
    ProcessKind, Reading,
};

/// Cards that say what a test wants, with MIG as an H100 with 80 GB has it.
pub struct Cards {
    state: Mutex<State>,
    /// Where the files of capabilities lie.
    proc: PathBuf,
}

struct State {
    cards: BTreeMap<PciAddress, Slot>,
    delay: Duration,
    calls: usize,
    fault: Option<CallFault>,
}

struct Slot {
    identity: Result<Identity, NvmlError>,
    /// As it was before it was lost.
    before: Result<Identity, NvmlError>,
    architecture: Architecture,
    /// The mode that the administrator has given it.
    mode: bool,
    compute_mode: ComputeMode,
    instances: Vec<GpuInstance>,
    /// Ids of the instances that the administrator made.
    admins: BTreeSet<u32>,
    processes: Vec<Process>,
    /// Whether a monitor has the card open.
    is_open: bool,
    made: u32,
}

/// A call that does not go well.
#[derive(Clone, Debug)]
struct CallFault {
    /// Which, counted from now; `None` is every one.
    number: Option<usize>,
    function: Option<&'static str>,
    error: Option<u32>,
    has_effect: bool,
    pause: Duration,
    calls: usize,
}

/// An instance on a card, as tests name it: card, profile's id, first memory slice.
pub type Instance = (u8, u32, u32);

/// Profiles: id, name, compute slices, size in memory slices, starts.
const PROFILES: [(u32, &str, u32, u32, &[u32]); 7] = [
    (19, "1g.10gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
    (20, "1g.10gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
    (15, "1g.20gb", 1, 2, &[0, 2, 4, 6]),
    (14, "2g.20gb", 2, 2, &[0, 2, 4]),
    (9, "3g.40gb", 3, 4, &[0, 4]),
    (5, "4g.40gb", 4, 4, &[0]),
    (0, "7g.80gb", 7, 8, &[0]),
];

impl Cards {
    /// Cards `gpu-01-00`, `gpu-02-00`, … with minors from 0 and UUIDs `GPU-0`, `GPU-1`, ….
    pub fn new(count: u8, proc: &Path) -> Self {
        let card = |index: u8| {
            let identity = Identity {
                index: index.into(),
                minor: index.into(),
                uuid: format!("GPU-{index}"),
                mig_mode: Some(false),
            };
            let slot = Slot {
                identity: Ok(identity),
                before: Err(lost()),
                architecture: Architecture::HOPPER,
                mode: false,
                compute_mode: ComputeMode::Default,
                instances: Vec::new(),
                admins: BTreeSet::new(),
                processes: Vec::new(),
                is_open: false,
                made: 0,
            };
            (address(index), slot)
        };
        let cards = (0..count).map(card).collect();
        let state = State { cards, delay: Duration::ZERO, calls: 0, fault: None };
        fs::create_dir_all(proc).unwrap();
        fs::write(proc.join("devices"), "Character devices:\n195 nvidia\n509 nvidia-caps\n").unwrap();
        Self { state: Mutex::new(state), proc: proc.to_owned() }
    }

    pub fn change(&self, index: u8, change: impl FnOnce(&mut Identity)) {
        if let Ok(identity) = &mut self.slot(index, |slot| slot.identity.clone()) {
            change(identity);
            self.slot(index, |slot| slot.identity = Ok(identity.clone()));
        }
    }

    pub fn lose(&self, index: u8) {
        self.slot(index, |slot| slot.before = std::mem::replace(&mut slot.identity, Err(lost())));
    }

    /// A lost card is back.
    pub fn restore(&self, index: u8) {
        self.slot(index, |slot| slot.identity = slot.before.clone());
    }

    pub fn delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// How often a card was asked for.
    pub fn calls(&self) -> usize {
        self.lock().calls
    }

    /// The `number`-th call from now fails.
    pub fn fail_call(&self, number: usize, code: u32, has_effect: bool) {
        let (number, pause) = (Some(number), Duration::ZERO);
        let fault = CallFault { number, function: None, error: Some(code), has_effect, pause, calls: 0 };
        self.lock().fault = Some(fault);
    }

    /// Calls of a function take so long.
    pub fn slow_function(&self, function: &'static str, pause: Duration) {
        let function = Some(function);
        let fault = CallFault { number: None, function, error: None, has_effect: true, pause, calls: 0 };
        self.lock().fault = Some(fault);
    }

    /// Calls so far that the ordered fault is for.
    pub fn fault_calls(&self) -> usize {
        self.lock().fault.as_ref().map_or(0, |fault| fault.calls)
    }

    /// All calls go well from now on. Whether the fault has come.
    pub fn heal(&self) -> bool {
        let fault = self.lock().fault.take();
        fault.is_some_and(|fault| fault.number.is_none_or(|number| fault.calls >= number))
    }

    /// The machine starts again: instances and modes are gone, as on Hopper.
    pub fn boot(&self) {
        for slot in self.lock().cards.values_mut() {
            slot.instances.clear();
            slot.admins.clear();
            slot.processes.clear();
            slot.mode = false;
            slot.compute_mode = ComputeMode::Default;
            if let Ok(identity) = &mut slot.identity {
                identity.mig_mode = identity.mig_mode.map(|_| false);
            }
        }
        let _ = fs::remove_dir_all(self.proc.join("driver"));
    }

    /// Gives the cards UUIDs as real ones have them, which programs of the driver take.
    pub fn real_uuids(&self) {
        for (index, slot) in (0..).zip(self.lock().cards.values_mut()) {
            slot.identity.as_mut().unwrap().uuid = real_uuid(index);
        }
    }

    /// How many cards there are.
    pub fn count(&self) -> u8 {
        u8::try_from(self.lock().cards.len()).unwrap()
    }

    /// The compute mode of a card.
    pub fn compute_mode(&self, index: u8) -> ComputeMode {
        self.slot(index, |slot| slot.compute_mode)
    }

    /// Somebody sets the compute mode of a card; what it was.
    pub fn change_compute_mode(&self, index: u8, mode: ComputeMode) -> ComputeMode {
        self.slot(index, |slot| std::mem::replace(&mut slot.compute_mode, mode))
    }

    pub fn architecture(&self, index: u8, architecture: Architecture) {
        self.slot(index, |slot| slot.architecture = architecture);
    }

    /// The administrator switches a card's mode.
    pub fn admin_mode(&self, index: u8, on: bool) {
        self.slot(index, |slot| slot.mode = on);
        self.change(index, |identity| identity.mig_mode = Some(on));
    }

    /// The administrator makes a GPU instance, with a compute instance in it or without.
    pub fn admin_instance(&self, (index, profile, start): Instance, with_compute: bool) -> u32 {
        let address = address(index);
        let (.., size, _) = PROFILES.iter().find(|known| known.0 == profile).unwrap();
        let made = self.create(address, profile, Placement { start, size: *size }).unwrap();
        if with_compute {
            self.create_compute(address, made.id, widest(profile)).unwrap();
        }
        self.slot(index, |slot| slot.admins.insert(made.id));
        made.id
    }

    /// The administrator destroys an instance, whoever made it.
    pub fn admin_destroys(&self, index: u8, gpu_instance: u32) {
        self.slot(index, |slot| {
            slot.instances.retain(|instance| instance.id != gpu_instance);
            slot.admins.remove(&gpu_instance);
        });
    }

    /// A program runs on a card, in a GPU instance or beside MIG.
    pub fn run(&self, index: u8, pid: u32, gpu_instance: Option<u32>) {
        let process = Process {
            pid,
            kind: ProcessKind::Compute,
            used_memory: None,
            gpu_instance,
            compute_instance: gpu_instance.map(|_| 0),
        };
        self.slot(index, |slot| slot.processes.push(process));
    }

    pub fn end(&self, index: u8) {
        self.slot(index, |slot| slot.processes.clear());
    }

    /// A monitor, which the driver does not name, opens a card.
    pub fn open(&self, index: u8, is_open: bool) {
        self.slot(index, |slot| slot.is_open = is_open);
    }

    /// The instances on all cards, by who made them: the administrator's, and the others.
    pub fn instances(&self) -> (Vec<Instance>, Vec<Instance>) {
        let mut answer = (Vec::new(), Vec::new());
        for (index, slot) in (0..).zip(self.lock().cards.values()) {
            for instance in &slot.instances {
                let list = if slot.admins.contains(&instance.id) { &mut answer.0 } else { &mut answer.1 };
                list.push((index, instance.profile_id, instance.placement.start));
            }
        }
        answer.0.sort_unstable();
        answer.1.sort_unstable();
        answer
    }

    /// UUIDs of the instances that the administrator has not made. A GPU instance without compute instance counts too.
    pub fn own_uuids(&self) -> BTreeSet<String> {
        let mut uuids = BTreeSet::new();
        for slot in self.lock().cards.values() {
            for instance in slot.instances.iter().filter(|instance| !slot.admins.contains(&instance.id)) {
                let empty = format!("GPU instance {} without compute instance", instance.id);
                let uuid = instance.compute_instances.first().and_then(|compute| compute.uuid.clone());
                uuids.insert(uuid.unwrap_or(empty));
            }
        }
        uuids
    }

    /// The records there must be of cards whose mode is not the administrator's.
    pub fn switched(&self) -> BTreeSet<String> {
        let state = self.lock();
        let is_switched = |slot: &Slot| {
            slot.identity
                .as_ref()
                .is_ok_and(|identity| identity.mig_mode.is_some_and(|mode| mode != slot.mode))
        };
        let switched = state.cards.iter().filter(|(_, slot)| is_switched(slot));
        switched.map(|(address, _)| format!("gpu-{:02x}-00-mig-mode", address.bus)).collect()
    }

    pub fn mode(&self, index: u8) -> Option<bool> {
        self.slot(index, |slot| slot.identity.as_ref().unwrap().mig_mode)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn slot<T>(&self, index: u8, work: impl FnOnce(&mut Slot) -> T) -> T {
        work(self.lock().cards.get_mut(&address(index)).unwrap())
    }

    /// A call of the driver, with the fault that is ordered for it.
    fn call<T>(
        &self,
        function: &'static str,
        effect: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        let fault = {
            let mut state = self.lock();
            let fault = state.fault.as_mut();
            let hit = fault.filter(|fault| fault.function.is_none_or(|wanted| wanted == function));
            hit.and_then(|fault| {
                fault.calls += 1;
                fault.number.is_none_or(|number| number == fault.calls).then(|| fault.clone())
            })
        };
        let Some(fault) = fault else { return effect() };
        thread::sleep(fault.pause);
        let answer = if fault.has_effect { effect().map(Some) } else { Ok(None) };
        match (fault.error, answer) {
            (Some(code), _) => Err(error(function, code)),
            (None, Ok(Some(answer))) => Ok(answer),
            (None, Ok(None)) => Err(error(function, 999)),
            (None, Err(error)) => Err(error),
        }
    }

    fn with<T>(
        &self,
        address: PciAddress,
        work: impl FnOnce(&mut Slot) -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        let mut state = self.lock();
        let missing = || error("nvmlDeviceGetHandleByPciBusId_v2", 6);
        let slot = state.cards.get_mut(&address).ok_or_else(missing)?;
        slot.identity.clone()?;
        work(slot)
    }

    fn create(
        &self,
        address: PciAddress,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstance, NvmlError> {
        let function = "nvmlDeviceCreateGpuInstanceWithPlacement";
        let instance = self.with(address, |slot| {
            if slot.identity.as_ref().unwrap().mig_mode != Some(true) {
                return Err(error(function, 3));
            }
            let (.., size, starts) =
                *PROFILES.iter().find(|known| known.0 == profile_id).ok_or_else(|| error(function, 2))?;
            if size != placement.size || !starts.contains(&placement.start) {
                return Err(error(function, 2));
            }
            let overlaps = |other: &GpuInstance| {
                let other = other.placement;
                placement.start < other.start + other.size && other.start < placement.start + placement.size
            };
            if slot.instances.iter().any(overlaps) {
                return Err(error(function, 23));
            }
            // The smallest free one, so that ids are used again.
            let id = (1..).find(|id| slot.instances.iter().all(|other| other.id != *id)).unwrap();
            let instance = GpuInstance { id, profile_id, placement, compute_instances: Vec::new() };
            slot.instances.push(instance.clone());
            slot.admins.remove(&id);
            Ok(instance)
        })?;
        self.write_capability(address, instance.id, None);
        Ok(instance)
    }

    fn create_compute(
        &self,
        address: PciAddress,
        gpu_instance: u32,
        profile_id: u32,
    ) -> Result<ComputeInstance, NvmlError> {
        let function = "nvmlGpuInstanceCreateComputeInstance";
        let compute = self.with(address, |slot| {
            slot.made += 1;
            let card = slot.identity.as_ref().unwrap().uuid.clone();
            let made = slot.made;
            let instance = slot.instances.iter_mut().find(|instance| instance.id == gpu_instance);
            let instance = instance.ok_or_else(|| error(function, 6))?;
            if profile_id > 100 || !instance.compute_instances.is_empty() {
                return Err(error(function, 23));
            }
            let compute = ComputeInstance {
                id: 0,
                profile_id,
                placement: Placement { start: 0, size: profile_id },
                uuid: Some(match card.get(12..) {
                    Some(rest) => format!("MIG-{made:08x}{rest}"),
                    None => format!("MIG-{card}-{made}"),
                }),
            };
            instance.compute_instances.push(compute.clone());
            Ok(compute)
        })?;
        self.write_capability(address, gpu_instance, Some(compute.id));
        Ok(compute)
    }

    fn write_capability(&self, address: PciAddress, gpu_instance: u32, compute_instance: Option<u32>) {
        let minor = u32::from(address.bus) - 1;
        let mig = self.proc.join(format!("driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}"));
        let directory = compute_instance.map_or_else(|| mig.clone(), |id| mig.join(format!("ci{id}")));
        fs::create_dir_all(&directory).unwrap();
        let number = 3 + minor * 135 + gpu_instance * 9 + u32::from(compute_instance.is_some());
        let text = format!("DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
        fs::write(directory.join("access"), text).unwrap();
    }
}

impl Nvml for Cards {
    fn identify(&self, address: PciAddress) -> Result<Identity, NvmlError> {
        let delay = {
            let mut state = self.lock();
            state.calls += 1;
            state.delay
        };
        thread::sleep(delay);
        self.call("nvmlDeviceGetUUID", || self.with(address, |slot| slot.identity.clone()))
    }

    fn driver_version(&self) -> Result<String, NvmlError> {
        Ok("580.95.05".into())
    }

    fn card(&self, address: PciAddress) -> Result<Card, NvmlError> {
        self.call("nvmlDeviceGetArchitecture", || {
            self.with(address, |slot| {
                let identity = slot.identity.clone()?;
                let mode = identity.mig_mode.map(|mode| MigMode { current: mode, pending: mode });
                Ok(Card {
                    address,
                    pci_device_id: Ok(0x2330_10DE),
                    index: Ok(identity.index),
                    minor: Ok(identity.minor),
                    uuid: Ok(identity.uuid),
                    name: Ok("NVIDIA H100 80GB HBM3".into()),
                    brand: Ok(None),
                    architecture: Ok(Some(slot.architecture)),
                    compute_capability: Ok(None),
                    cores: Ok(None),
                    memory: Ok(None),
                    mig: Ok(mode),
                    compute_mode: Ok(Some(slot.compute_mode)),
                    addressing_mode: Ok(None),
                    memory_numa_node: Ok(None),
                    cpu_affinity: Ok(None),
                    links: Ok(Vec::new()),
                    fabric: Ok(None),
                })
            })
        })
    }

    fn set_compute_mode(&self, address: PciAddress, mode: ComputeMode) -> Result<(), NvmlError> {
        self.call("nvmlDeviceSetComputeMode", || {
            self.with(address, |slot| {
                slot.compute_mode = mode;
                Ok(())
            })
        })
    }

    fn processes(&self, address: PciAddress) -> Reading<Vec<Process>> {
        self.with(address, |slot| Ok(Some(slot.processes.clone())))
    }

    fn gpu_instance_profiles(&self, address: PciAddress) -> Reading<Vec<GpuInstanceProfile>> {
        self.call("nvmlDeviceGetGpuInstanceProfileInfoV", || {
            self.with(address, |slot| {
                if slot.identity.as_ref().unwrap().mig_mode.is_none() {
                    return Ok(None);
                }
                Ok(Some(PROFILES.iter().map(profile).collect()))
            })
        })
    }

    fn compute_instance_profiles(
        &self,
        address: PciAddress,
        gpu_instance: u32,
    ) -> Result<Vec<ComputeInstanceProfile>, NvmlError> {
        let function = "nvmlGpuInstanceGetComputeInstanceProfileInfoV";
        self.call(function, || {
            self.with(address, |slot| {
                let instance = slot.instances.iter().find(|instance| instance.id == gpu_instance);
                let widest = widest(instance.ok_or_else(|| error(function, 6))?.profile_id);
                // As on an H100, 3c is not offered inside 4g.
                let widths = [1, 2, 3, 4, 7].into_iter().filter(|width| *width <= widest);
                let widths = widths.filter(|width| !(*width == 3 && widest == 4));
                let mut profiles = vec![compute_profile(7, 1, 1)];
                profiles.extend(widths.map(|width| compute_profile(width - 1, width, widest / width)));
                Ok(profiles)
            })
        })
    }

    fn gpu_instances(&self, address: PciAddress) -> Result<Vec<GpuInstance>, NvmlError> {
        self.call("nvmlDeviceGetGpuInstances", || self.with(address, |slot| Ok(slot.instances.clone())))
    }

    fn set_mig_mode(&self, address: PciAddress, on: bool) -> Result<MigModeSwitch, NvmlError> {
        let function = "nvmlDeviceSetMigMode";
        self.call(function, || {
            self.with(address, |slot| {
                let busy = slot.is_open || !slot.processes.is_empty() || !slot.instances.is_empty();
                let is_ampere = slot.architecture < Architecture::HOPPER;
                let Ok(identity) = &mut slot.identity else { return Err(lost()) };
                let Some(mode) = &mut identity.mig_mode else { return Err(error(function, 3)) };
                if *mode == on {
                    return Ok(MigModeSwitch {
                        mode: MigMode { current: on, pending: on },
                        not_active: None,
                    });
                }
                if is_ampere {
                    return Ok(MigModeSwitch {
                        mode: MigMode { current: *mode, pending: on },
                        not_active: None,
                    });
                }
                if busy {
                    return Ok(MigModeSwitch {
                        mode: MigMode { current: *mode, pending: *mode },
                        not_active: Some(error(function, 19)),
                    });
                }
                *mode = on;
                Ok(MigModeSwitch { mode: MigMode { current: on, pending: on }, not_active: None })
            })
        })
    }

    fn create_gpu_instance(
        &self,
        address: PciAddress,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstance, NvmlError> {
        self.call("nvmlDeviceCreateGpuInstanceWithPlacement", || self.create(address, profile_id, placement))
    }

    fn destroy_gpu_instance(&self, address: PciAddress, gpu_instance: u32) -> Result<(), NvmlError> {
        let function = "nvmlGpuInstanceDestroy";
        self.call(function, || {
            self.with(address, |slot| {
                let place = slot.instances.iter().position(|instance| instance.id == gpu_instance);
                let place = place.ok_or_else(|| error(function, 6))?;
                let runs = slot.processes.iter().any(|process| process.gpu_instance == Some(gpu_instance));
                if runs || !slot.instances[place].compute_instances.is_empty() {
                    return Err(error(function, 19));
                }
                assert!(!slot.admins.contains(&gpu_instance), "the administrator's instance is destroyed");
                slot.instances.remove(place);
                Ok(())
            })
        })
    }

    fn create_compute_instance(
        &self,
        address: PciAddress,
        gpu_instance: u32,
        profile_id: u32,
    ) -> Result<ComputeInstance, NvmlError> {
        let function = "nvmlGpuInstanceCreateComputeInstance";
        self.call(function, || self.create_compute(address, gpu_instance, profile_id))
    }

    fn destroy_compute_instance(
        &self,
        address: PciAddress,
        gpu_instance: u32,
        compute_instance: u32,
    ) -> Result<(), NvmlError> {
        let function = "nvmlComputeInstanceDestroy";
        self.call(function, || {
            self.with(address, |slot| {
                let runs = slot.processes.iter().any(|process| process.gpu_instance == Some(gpu_instance));
                let instance = slot.instances.iter_mut().find(|instance| instance.id == gpu_instance);
                let instance = instance.ok_or_else(|| error(function, 6))?;
                if runs {
                    return Err(error(function, 19));
                }
                assert!(!slot.admins.contains(&gpu_instance), "the administrator's instance is destroyed");
                let before = instance.compute_instances.len();
                instance.compute_instances.retain(|compute| compute.id != compute_instance);
                if instance.compute_instances.len() == before { Err(error(function, 6)) } else { Ok(()) }
            })
        })
    }
}

fn profile((id, name, slices, size, starts): &(u32, &str, u32, u32, &[u32])) -> GpuInstanceProfile {
    GpuInstanceProfile {
        enumerator: *id,
        id: *id,
        name: (*name).to_owned(),
        compute_slices: *slices,
        max_instances: u32::try_from(starts.len()).unwrap(),
        memory_bytes: u64::from(*size) * (10 << 30),
        multiprocessors: slices * 16,
        copy_engines: *slices,
        decoders: *slices,
        encoders: 0,
        jpeg_engines: *slices,
        ofa_engines: 0,
        placements: starts.iter().map(|start| Placement { start: *start, size: *size }).collect(),
    }
}

/// Compute instances have the number of their slices as id; the narrow variant 101.
fn compute_profile(enumerator: u32, width: u32, most: u32) -> ComputeInstanceProfile {
    ComputeInstanceProfile {
        enumerator,
        id: if enumerator == 7 { 101 } else { width },
        compute_slices: width,
        multiprocessors: width * 16,
        max_instances: most,
    }
}

fn widest(profile: u32) -> u32 {
    PROFILES.iter().find(|known| known.0 == profile).unwrap().2
}

/// UUID of a card, as [`Cards::real_uuids`] gives it.
pub fn real_uuid(index: u8) -> String {
    format!("GPU-00000000-0000-4000-8000-{index:012x}")
}

fn address(index: u8) -> PciAddress {
    PciAddress { domain: 0, bus: index + 1, device: 0 }
}

fn lost() -> NvmlError {
    error("nvmlDeviceGetUUID", 15)
}

fn error(function: &'static str, code: u32) -> NvmlError {
    let text = match code {
        2 => "Invalid Argument",
        3 => "Not Supported",
        6 => "Not Found",
        15 => "GPU is lost",
        19 => "In use by another client",
        23 => "Insufficient Resources",
        _ => "Unknown Error",
    };
    NvmlError::Call { function, code, text: text.into() }
}
