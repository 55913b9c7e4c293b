//! The first card of an emulated machine, used through the driver's library.

use std::{collections::BTreeSet, path::Path};

use tessera_api::PciBusId;
use tessera_api::{DEFAULT_DRIVER_NAME, ProfileSpelling};
use tessera_harness::strangers::EmulatedMachine;
use tessera_inventory::{Machine, Pool, PoolOptions};
use tessera_kubelet_plugin::discovery::Discovery;
use tessera_nvml::{GpuInstanceProfile, Library, Nvml, NvmlError};

use crate::counted::Partition;

pub struct EmulatedCard {
    emulated: EmulatedMachine,
    library: Library,
    address: PciBusId,
    profiles: Vec<GpuInstanceProfile>,
}

impl EmulatedCard {
    /// In MIG mode; `None` on a machine without MIG.
    pub fn with_mig_on(programs: &Path, hardware: &str) -> Option<Self> {
        let emulated = EmulatedMachine::create(programs, hardware).unwrap();
        let library = Library::open(&emulated.library()).unwrap();
        let address = library.addresses().unwrap()[0].clone().unwrap();
        library.card(address).unwrap().mig.unwrap()?;
        if !library.set_mig_mode(address, true).unwrap().mode.current {
            emulated.tell(&["reset"], &["--card", "0"]).unwrap();
        }
        let profiles = library.gpu_instance_profiles(address).unwrap().unwrap();
        Some(Self { emulated, library, address, profiles })
    }

    pub fn hardware(&self) -> &str {
        self.emulated.hardware()
    }

    /// What is published of it.
    pub fn pool(&self) -> Pool {
        let mut discovery = Discovery::new(self.emulated.directory().join("sys"));
        discovery.read_once(&self.library);
        let machine = discovery.machine().unwrap();
        let mut cards = machine.cards.into_iter();
        let first = cards.find(|card| card.pci == self.address);
        let machine = Machine { cards: first.into_iter().collect(), ..Machine::default() };
        let pool = Pool::new(&machine, &PoolOptions::new(DEFAULT_DRIVER_NAME));
        assert_eq!(pool.warnings, [], "{}", self.hardware());
        pool
    }

    /// Makes exactly this partition's GPU instance, and returns its id.
    pub fn make(&self, partition: &Partition) -> Result<u32, NvmlError> {
        let is_meant = |name: &str| ProfileSpelling::of_profile(name).as_ref() == Ok(&partition.name.profile);
        let profile = self.profiles.iter().find(|profile| is_meant(&profile.name)).unwrap();
        let at = |start| profile.placements.iter().find(|placement| placement.start == start);
        let placement = *at(partition.name.start).unwrap();
        let made = self.library.create_gpu_instance(self.address, profile.id, placement)?;
        assert_eq!((made.profile_id, made.placement), (profile.id, placement));
        Ok(made.id)
    }

    pub fn destroy(&self, instance: u32) {
        self.library.destroy_gpu_instance(self.address, instance).unwrap();
    }

    /// Number of GPU instances.
    pub fn instances(&self) -> usize {
        self.library.gpu_instances(self.address).unwrap().len()
    }

    /// Makes the full compute instance in each GPU instance, and destroys it again.
    pub fn uses_all(&self) {
        let mut uuids = BTreeSet::new();
        let mut made = Vec::new();
        let instances = self.library.gpu_instances(self.address).unwrap();
        for instance in &instances {
            let offered = self.library.compute_instance_profiles(self.address, instance.id).unwrap();
            let full = offered.iter().max_by_key(|profile| profile.compute_slices).unwrap();
            let compute = self.library.create_compute_instance(self.address, instance.id, full.id).unwrap();
            uuids.insert(compute.uuid.clone().unwrap());
            made.push((instance.id, compute.id));
        }
        assert_eq!(uuids.len(), instances.len(), "two MIG devices with one UUID: {uuids:?}");
        for (instance, compute) in made {
            self.library.destroy_compute_instance(self.address, instance, compute).unwrap();
        }
    }
}
