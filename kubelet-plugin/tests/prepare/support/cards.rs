//! Fake cards with MIG.

mod driver;
mod profiles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tessera_api::PciBusId;
use tessera_nvml::{
    Architecture, ComputeMode, GpuInstance, Identity, NvmlError, Placement, Process, ProcessKind,
};

use profiles::{PROFILES, widest};

/// Cards with readings set by a test, with the MIG profiles of an H100 with 80 GB.
pub struct Cards {
    state: Mutex<State>,
    /// Notified when a card stops hanging.
    released: Condvar,
    /// Directory of the capability files.
    proc: PathBuf,
}

struct State {
    cards: BTreeMap<PciBusId, Slot>,
    delay: Duration,
    calls: usize,
    fault: Option<CallFault>,
    /// Cards whose calls don't return, and the number of waiting calls.
    hung: BTreeMap<PciBusId, usize>,
}

/// The card hangs until this is dropped.
pub struct Hang<'a> {
    cards: &'a Cards,
    address: PciBusId,
}

struct Slot {
    identity: Result<Identity, NvmlError>,
    /// Its identity before the loss.
    before: Result<Identity, NvmlError>,
    architecture: Architecture,
    /// The mode set by the administrator.
    mode: bool,
    compute_mode: ComputeMode,
    /// The mode after the next reset.
    pending_mode: Option<bool>,
    instances: Vec<GpuInstance>,
    /// Ids of the administrator's instances.
    admins: BTreeSet<u32>,
    processes: Vec<Process>,
    /// Whether a monitor has the card open.
    is_open: bool,
    made: u32,
}

/// A failing or slow driver call.
#[derive(Clone, Debug)]
struct CallFault {
    /// The number of the call, counted from now; `None` for every call.
    number: Option<usize>,
    function: Option<&'static str>,
    error: Option<u32>,
    has_effect: bool,
    pause: Duration,
    calls: usize,
}

/// An instance on a card, as named in tests: card, profile's id, first memory slice.
pub type Instance = (u8, u32, u32);

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
                pending_mode: None,
                instances: Vec::new(),
                admins: BTreeSet::new(),
                processes: Vec::new(),
                is_open: false,
                made: 0,
            };
            (address(index), slot)
        };
        let cards = (0..count).map(card).collect();
        let state = State { cards, delay: Duration::ZERO, calls: 0, fault: None, hung: BTreeMap::new() };
        fs::create_dir_all(proc).unwrap();
        fs::write(proc.join("devices"), "Character devices:\n195 nvidia\n508 nvidia-uvm\n509 nvidia-caps\n")
            .unwrap();
        Self { state: Mutex::new(state), released: Condvar::new(), proc: proc.to_owned() }
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

    /// Brings a lost card back.
    pub fn restore(&self, index: u8) {
        self.slot(index, |slot| slot.identity = slot.before.clone());
    }

    /// Calls for a card don't return until the result is dropped.
    pub fn hang(&self, index: u8) -> Hang<'_> {
        self.lock().hung.insert(address(index), 0);
        Hang { cards: self, address: address(index) }
    }

    fn wait_while_hung(&self, address: PciBusId) {
        let mut state = self.lock();
        if let Some(waiting) = state.hung.get_mut(&address) {
            *waiting += 1;
            drop(self.released.wait_while(state, |state| state.hung.contains_key(&address)).unwrap());
        }
    }

    /// Replaces a card by another while the machine runs.
    pub fn replace(&self, index: u8) {
        self.slot(index, |slot| {
            slot.instances.clear();
            slot.admins.clear();
            slot.processes.clear();
            (slot.mode, slot.made) = (false, 0);
        });
        self.change(index, |identity| {
            identity.uuid.push_str("-other");
            identity.mig_mode = Some(false);
        });
    }

    pub fn delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// Number of calls for a card's identity.
    pub fn calls(&self) -> usize {
        self.lock().calls
    }

    /// Makes the `number`-th call from now fail.
    pub fn fail_call(&self, number: usize, code: u32, has_effect: bool) {
        let (number, pause) = (Some(number), Duration::ZERO);
        let fault = CallFault { number, function: None, error: Some(code), has_effect, pause, calls: 0 };
        self.lock().fault = Some(fault);
    }

    /// Makes calls of a function slow.
    pub fn slow_function(&self, function: &'static str, pause: Duration) {
        let function = Some(function);
        let fault = CallFault { number: None, function, error: None, has_effect: true, pause, calls: 0 };
        self.lock().fault = Some(fault);
    }

    /// Makes every call of a function fail.
    pub fn fail_function(&self, function: &'static str, code: u32) {
        let (function, pause) = (Some(function), Duration::ZERO);
        let fault =
            CallFault { number: None, function, error: Some(code), has_effect: false, pause, calls: 0 };
        self.lock().fault = Some(fault);
    }

    /// Calls so far matching the set fault.
    pub fn fault_calls(&self) -> usize {
        self.lock().fault.as_ref().map_or(0, |fault| fault.calls)
    }

    /// Removes the fault; returns whether the fault occurred.
    pub fn heal(&self) -> bool {
        let fault = self.lock().fault.take();
        fault.is_some_and(|fault| fault.number.is_none_or(|number| fault.calls >= number))
    }

    /// Starts the machine again: instances and modes are gone, as on Hopper.
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

    /// Gives the cards UUIDs in the form of real ones, as accepted by the driver's programs.
    pub fn real_uuids(&self) {
        for (index, slot) in (0..).zip(self.lock().cards.values_mut()) {
            slot.identity.as_mut().unwrap().uuid = real_uuid(index);
        }
    }

    /// Number of cards.
    pub fn count(&self) -> u8 {
        u8::try_from(self.lock().cards.len()).unwrap()
    }

    /// The compute mode of a card.
    pub fn compute_mode(&self, index: u8) -> ComputeMode {
        self.slot(index, |slot| slot.compute_mode)
    }

    /// Sets a card's compute mode, as somebody else; returns the mode before.
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

    /// The administrator makes a GPU instance, with or without a compute instance.
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

    /// The administrator destroys an instance, also one of ours.
    pub fn admin_destroys(&self, index: u8, gpu_instance: u32) {
        self.slot(index, |slot| {
            slot.instances.retain(|instance| instance.id != gpu_instance);
            slot.admins.remove(&gpu_instance);
        });
    }

    /// Starts a program on a card, in a GPU instance or outside MIG.
    pub fn run(&self, index: u8, pid: u32, gpu_instance: Option<u32>) {
        self.slot(index, |slot| slot.processes.push(process(pid, gpu_instance)));
    }

    /// Starts or ends a program on the partition with this UUID, if there is one.
    pub fn run_on_partition(&self, uuid: &str, pid: u32, is_running: bool) {
        for slot in self.lock().cards.values_mut() {
            let has_uuid = |instance: &&GpuInstance| {
                instance.compute_instances.iter().any(|compute| compute.uuid.as_deref() == Some(uuid))
            };
            let Some(id) = slot.instances.iter().find(has_uuid).map(|instance| instance.id) else { continue };
            slot.processes.retain(|process| process.pid != pid || process.gpu_instance != Some(id));
            if is_running {
                slot.processes.push(process(pid, Some(id)));
            }
        }
    }

    pub fn end(&self, index: u8) {
        self.slot(index, |slot| slot.processes.clear());
    }

    /// A monitor, not listed by the driver, opens or closes a card.
    pub fn open(&self, index: u8, is_open: bool) {
        self.slot(index, |slot| slot.is_open = is_open);
    }

    /// The instances on all cards: the administrator's, and all others.
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

    /// UUIDs of all instances but the administrator's. Includes GPU instances without compute instance.
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

    /// Ids of the records required for cards whose mode differs from the administrator's.
    pub fn switched(&self) -> BTreeSet<String> {
        let state = self.lock();
        let is_switched = |slot: &Slot| {
            slot.identity
                .as_ref()
                .is_ok_and(|identity| identity.mig_mode.is_some_and(|mode| mode != slot.mode))
        };
        let switched = state.cards.iter().filter(|(_, slot)| is_switched(slot));
        switched.map(|(address, _)| format!("gpu-{:02x}-00-mig-mode", address.bus())).collect()
    }

    pub fn mode(&self, index: u8) -> Option<bool> {
        self.slot(index, |slot| slot.identity.as_ref().unwrap().mig_mode)
    }

    /// The mode of a card after a reset.
    pub fn mode_after_reset(&self, index: u8) -> Option<bool> {
        self.slot(index, |slot| slot.pending_mode.or(slot.identity.as_ref().unwrap().mig_mode))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn slot<T>(&self, index: u8, work: impl FnOnce(&mut Slot) -> T) -> T {
        work(self.lock().cards.get_mut(&address(index)).unwrap())
    }
}

impl Hang<'_> {
    /// Number of waiting calls.
    pub fn calls(&self) -> usize {
        self.cards.lock().hung[&self.address]
    }
}

impl Drop for Hang<'_> {
    fn drop(&mut self) {
        self.cards.lock().hung.remove(&self.address);
        self.cards.released.notify_all();
    }
}

/// UUID of a card, as set by [`Cards::real_uuids`].
pub fn real_uuid(index: u8) -> String {
    format!("GPU-00000000-0000-4000-8000-{index:012x}")
}

fn process(pid: u32, gpu_instance: Option<u32>) -> Process {
    Process {
        pid,
        kind: ProcessKind::Compute,
        used_memory: None,
        gpu_instance,
        compute_instance: gpu_instance.map(|_| 0),
    }
}

fn address(index: u8) -> PciBusId {
    PciBusId::new(0, index + 1, 0, 0).unwrap()
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
