//! An emulated machine as this driver publishes it; partitions are made by the driver library.

use std::collections::BTreeMap;

use tessera_api::{DeviceName, Offer, PciBusId, ProfileSpelling};
use tessera_inventory::{Machine, Pool, PoolOptions};
use tessera_kubelet_plugin::discovery::Discovery;
use tessera_nvml::{Library, Nvml, Placement};

use crate::DRIVER;
use crate::machine::EmulatedMachine;

pub struct EmulatedNode {
    _emulated: EmulatedMachine,
    library: Library,
    machine: Machine,
    /// GPU instances by the name of the device that they were made for; `None` for a whole card.
    made: BTreeMap<String, Option<u32>>,
}

impl EmulatedNode {
    /// The machine with MIG mode on; `None` for one without MIG.
    pub fn with_mig_on(hardware: &str) -> Option<Self> {
        let emulated = EmulatedMachine::new(hardware);
        let library = Library::open_below(&emulated.root()).unwrap();
        for (position, address) in library.addresses().unwrap().into_iter().enumerate() {
            let address = address.unwrap();
            library.card(address).unwrap().mig.unwrap()?;
            if !library.set_mig_mode(address, true).unwrap().mode.current {
                emulated.let_happen(&format!("reset --card {position}"));
            }
        }
        Some(Self::read(emulated, library))
    }

    /// The machine in its initial state, with one card.
    pub fn with_one_card(hardware: &str) -> Self {
        let emulated = EmulatedMachine::with(hardware, &["--cards", "1"]);
        let library = Library::open_below(&emulated.root()).unwrap();
        Self::read(emulated, library)
    }

    fn read(emulated: EmulatedMachine, library: Library) -> Self {
        let mut discovery = Discovery::new(emulated.root().join("sys"));
        discovery.read_once(&library);
        let machine = discovery.machine().unwrap();
        Self { _emulated: emulated, library, machine, made: BTreeMap::new() }
    }

    /// What is published of it.
    pub fn pool(&self, config: &Offer) -> Pool {
        let pool = Pool::new(
            &self.machine,
            &PoolOptions { offers: config.clone().into(), ..PoolOptions::new(DRIVER) },
        );
        assert_eq!(pool.warnings, []);
        pool
    }

    /// The profiles of its cards.
    pub fn profile_names(&self) -> Vec<String> {
        let mig = self.machine.cards[0].mig.as_ref().unwrap();
        mig.profiles.iter().map(|profile| profile.name.clone()).collect()
    }

    /// Makes an allocated device, which must succeed.
    pub fn make(&mut self, device: &str) {
        let instance = self.try_make(device).unwrap_or_else(|why| panic!("{device} was allocated: {why}"));
        self.made.insert(device.to_owned(), instance);
    }

    /// Whether the hardware could make it now.
    pub fn can_make(&self, device: &str) -> bool {
        match self.try_make(device) {
            Ok(instance) => {
                if let Some(instance) = instance {
                    self.library.destroy_gpu_instance(card(device), instance).unwrap();
                }
                true
            }
            Err(_) => false,
        }
    }

    pub fn release(&mut self, device: &str) {
        if let Some(instance) = self.made.remove(device).unwrap() {
            self.library.destroy_gpu_instance(card(device), instance).unwrap();
        }
    }

    fn try_make(&self, device: &str) -> Result<Option<u32>, String> {
        let name: DeviceName = device.parse().unwrap();
        let mut on_card = self.made.keys().filter(|other| card(other) == name.card());
        let Some(partition) = name.partition() else {
            // A whole card is free when nothing else of it is in use.
            return on_card.next().map_or(Ok(None), |other| Err(format!("{other} is in use")));
        };
        if on_card.any(|other| matches!(other.parse(), Ok(DeviceName::Card(_)))) {
            return Err("the whole card is in use".to_owned());
        }
        let address = card(device);
        let profiles = self.library.gpu_instance_profiles(address).unwrap().unwrap();
        let is_meant = |name: &str| ProfileSpelling::of_profile(name).as_ref() == Ok(&partition.profile);
        let profile = profiles.iter().find(|profile| is_meant(&profile.name)).unwrap();
        let placement: Placement =
            *profile.placements.iter().find(|placement| placement.start == partition.start).unwrap();
        let made = self.library.create_gpu_instance(address, profile.id, placement);
        made.map(|instance| Some(instance.id)).map_err(|error| error.to_string())
    }
}

fn card(device: &str) -> PciBusId {
    device.parse::<DeviceName>().unwrap().card()
}
