//! Reads the MIG facts of a card.

use tessera_api::PciBusId;
use tessera_api::facts::GpuInstance;
use tessera_inventory::machine::Mig;
use tessera_nvml::{Architecture, MigMode, Nvml, Reading};

use super::own_partitions::OwnPartitions;
use super::problem::Problems;

/// Reads the MIG facts of one card.
pub(super) struct MigReader<'a> {
    pub(super) nvml: &'a dyn Nvml,
    pub(super) pci: PciBusId,
    pub(super) uuid: &'a str,
    /// `None` until the journal is open: until then no instances are reported.
    pub(super) own: Option<&'a dyn OwnPartitions>,
}

impl MigReader<'_> {
    /// The facts; unreadable ones stay as in `known`.
    pub(super) fn read(
        &self,
        mode: Reading<MigMode>,
        architecture: Option<Architecture>,
        known: Option<Mig>,
        problems: &mut Problems,
    ) -> Option<Mig> {
        let mode = match mode {
            Ok(mode) => mode?,
            Err(error) => {
                problems.add(Some(self.pci), "migCapable", error);
                return known;
            }
        };
        let was_known = known.as_ref().is_some_and(|known| !known.profiles.is_empty());
        let mut mig = known.unwrap_or_default();
        mig.mode = mode.current;
        match architecture {
            Some(chip) => mig.mode_switch_needs_reset = chip < Architecture::HOPPER,
            // The mode of an unknown chip is not switched.
            None if !was_known => mig.mode_switch_needs_reset = true,
            None => {}
        }
        match self.nvml.gpu_instance_profiles(self.pci) {
            // Older drivers report profiles only while the mode is on.
            Ok(profiles) => {
                let profiles = profiles.unwrap_or_default();
                if !profiles.is_empty() {
                    mig.profiles = profiles;
                }
            }
            Err(error) => problems.add(Some(self.pci), "MIG profiles", error),
        }
        match self.instances_of_others(mode, &mig.instances) {
            Ok(instances) => mig.instances = instances,
            Err(message) => {
                problems.add(Some(self.pci), "MIG instances", message);
                if !was_known {
                    // The taken slices are unknown, so nothing can be offered.
                    mig.profiles.clear();
                }
            }
        }
        Some(mig)
    }

    /// The GPU instances not made by this driver for claims.
    fn instances_of_others(&self, mode: MigMode, known: &[GpuInstance]) -> Result<Vec<GpuInstance>, String> {
        if !mode.current {
            return Ok(Vec::new());
        }
        let mut others = self.look()?;
        if others.iter().any(|other| known.iter().all(|known| known.id != other.id)) {
            // One of ours may have been made and destroyed between reading the journal and the driver: then the instance is
            // gone now.
            let again = self.look()?;
            others.retain(|other| again.iter().any(|one| one.id == other.id));
        }
        others.sort_by_key(|instance| instance.id);
        Ok(others)
    }

    fn look(&self) -> Result<Vec<GpuInstance>, String> {
        let own = || match self.own {
            Some(own) => own.of_card(self.pci, self.uuid).map_err(|error| error.to_string()),
            None => Ok(Vec::new()),
        };
        // Read the journal before and after the driver: a record exists before its instance and is removed after the instance.
        let mut ours = own()?;
        let mut instances = self.nvml.gpu_instances(self.pci).map_err(|error| error.to_string())?;
        ours.extend(own()?);
        instances.retain(|instance| !ours.iter().any(|own| own.is(instance)));
        Ok(instances)
    }
}

#[cfg(test)]
mod tests;
