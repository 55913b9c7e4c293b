//! The driver's functions on fake cards.

use std::{fs, thread};

use tessera_api::PciBusId;
use tessera_nvml::{
    Architecture, CardReadings, ComputeInstance, ComputeInstanceProfile, ComputeMode, GpuInstance,
    GpuInstanceProfile, Identity, MigMode, MigModeSwitch, Nvml, NvmlError, Placement, Process, Reading,
};

use super::profiles::{PROFILES, compute_profile, profile, widest};
use super::{Cards, Slot, error, lost};

impl Cards {
    /// Makes a driver call, with its set fault.
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
        address: PciBusId,
        work: impl FnOnce(&mut Slot) -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        self.wait_while_hung(address);
        let mut state = self.lock();
        let missing = || error("nvmlDeviceGetHandleByPciBusId_v2", 6);
        let slot = state.cards.get_mut(&address).ok_or_else(missing)?;
        slot.identity.clone()?;
        work(slot)
    }

    pub(super) fn create(
        &self,
        address: PciBusId,
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
            if slot.instances.iter().any(|other| other.placement.overlaps(placement)) {
                return Err(error(function, 23));
            }
            // The smallest free id: ids are reused.
            let id = (1..).find(|id| slot.instances.iter().all(|other| other.id != *id)).unwrap();
            let instance = GpuInstance { id, profile_id, placement, compute_instances: Vec::new() };
            slot.instances.push(instance.clone());
            slot.admins.remove(&id);
            Ok(instance)
        })?;
        self.write_capability(address, instance.id, None);
        Ok(instance)
    }

    pub(super) fn create_compute(
        &self,
        address: PciBusId,
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
                multiprocessors: None,
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

    fn write_capability(&self, address: PciBusId, gpu_instance: u32, compute_instance: Option<u32>) {
        let minor = u32::from(address.bus()) - 1;
        let mig = self.proc.join(format!("driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}"));
        let directory = compute_instance.map_or_else(|| mig.clone(), |id| mig.join(format!("ci{id}")));
        fs::create_dir_all(&directory).unwrap();
        let number = 3 + minor * 135 + gpu_instance * 9 + u32::from(compute_instance.is_some());
        let text = format!("DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
        fs::write(directory.join("access"), text).unwrap();
    }
}

impl Nvml for Cards {
    fn identify(&self, address: PciBusId) -> Result<Identity, NvmlError> {
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

    fn card(&self, address: PciBusId) -> Result<CardReadings, NvmlError> {
        self.call("nvmlDeviceGetArchitecture", || {
            self.with(address, |slot| {
                let identity = slot.identity.clone()?;
                let mode = identity.mig_mode.map(|mode| MigMode { current: mode, pending: mode });
                Ok(CardReadings {
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

    fn set_compute_mode(&self, address: PciBusId, mode: ComputeMode) -> Result<(), NvmlError> {
        self.call("nvmlDeviceSetComputeMode", || {
            self.with(address, |slot| {
                slot.compute_mode = mode;
                Ok(())
            })
        })
    }

    fn processes(&self, address: PciBusId) -> Reading<Vec<Process>> {
        self.with(address, |slot| Ok(Some(slot.processes.clone())))
    }

    fn gpu_instance_profiles(&self, address: PciBusId) -> Reading<Vec<GpuInstanceProfile>> {
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
        address: PciBusId,
        gpu_instance: u32,
    ) -> Result<Vec<ComputeInstanceProfile>, NvmlError> {
        let function = "nvmlGpuInstanceGetComputeInstanceProfileInfoV";
        self.call(function, || {
            self.with(address, |slot| {
                let instance = slot.instances.iter().find(|instance| instance.id == gpu_instance);
                let widest = widest(instance.ok_or_else(|| error(function, 6))?.profile_id);
                // As on an H100, 3c is not available inside 4g.
                let widths = [1, 2, 3, 4, 7].into_iter().filter(|width| *width <= widest);
                let widths = widths.filter(|width| !(*width == 3 && widest == 4));
                let mut profiles = vec![compute_profile(7, 1, 1)];
                profiles.extend(widths.map(|width| compute_profile(width - 1, width, widest / width)));
                Ok(profiles)
            })
        })
    }

    fn gpu_instances(&self, address: PciBusId) -> Result<Vec<GpuInstance>, NvmlError> {
        self.call("nvmlDeviceGetGpuInstances", || self.with(address, |slot| Ok(slot.instances.clone())))
    }

    fn set_mig_mode(&self, address: PciBusId, on: bool) -> Result<MigModeSwitch, NvmlError> {
        let function = "nvmlDeviceSetMigMode";
        self.call(function, || {
            self.with(address, |slot| {
                let busy = slot.is_open || !slot.processes.is_empty() || !slot.instances.is_empty();
                let is_ampere = slot.architecture < Architecture::HOPPER;
                let Ok(identity) = &mut slot.identity else { return Err(lost()) };
                let Some(mode) = &mut identity.mig_mode else { return Err(error(function, 3)) };
                if *mode == on {
                    slot.pending_mode = None;
                    return Ok(MigModeSwitch {
                        mode: MigMode { current: on, pending: on },
                        not_active: None,
                    });
                }
                if is_ampere || busy {
                    // The new mode is kept for the next reset.
                    slot.pending_mode = Some(on);
                    return Ok(MigModeSwitch {
                        mode: MigMode { current: *mode, pending: on },
                        not_active: (!is_ampere).then(|| error(function, 19)),
                    });
                }
                *mode = on;
                slot.pending_mode = None;
                Ok(MigModeSwitch { mode: MigMode { current: on, pending: on }, not_active: None })
            })
        })
    }

    fn create_gpu_instance(
        &self,
        address: PciBusId,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstance, NvmlError> {
        self.call("nvmlDeviceCreateGpuInstanceWithPlacement", || self.create(address, profile_id, placement))
    }

    fn destroy_gpu_instance(&self, address: PciBusId, gpu_instance: u32) -> Result<(), NvmlError> {
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
        address: PciBusId,
        gpu_instance: u32,
        profile_id: u32,
    ) -> Result<ComputeInstance, NvmlError> {
        let function = "nvmlGpuInstanceCreateComputeInstance";
        self.call(function, || self.create_compute(address, gpu_instance, profile_id))
    }

    fn destroy_compute_instance(
        &self,
        address: PciBusId,
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
