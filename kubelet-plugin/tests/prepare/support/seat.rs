//! Cards as seen by one process of the plugin.

use std::sync::Arc;

use tessera_api::PciBusId;
use tessera_nvml::{
    CardReadings, ComputeInstance, ComputeInstanceProfile, ComputeMode, GpuInstance, GpuInstanceProfile,
    Identity, MigModeSwitch, Nvml, NvmlError, Placement, Process, Reading,
};

use super::{Cards, Disk};

/// The cards as one process sees them. Their calls die and fail with the process's disk; the cards themselves live
/// on.
pub struct Seat {
    pub cards: Arc<Cards>,
    pub disk: Arc<Disk>,
}

impl Nvml for Seat {
    fn identify(&self, address: PciBusId) -> Result<Identity, NvmlError> {
        self.disk.card_look()?;
        self.cards.identify(address)
    }

    fn driver_version(&self) -> Result<String, NvmlError> {
        self.cards.driver_version()
    }

    fn card(&self, address: PciBusId) -> Result<CardReadings, NvmlError> {
        self.disk.card_look()?;
        self.cards.card(address)
    }

    fn set_compute_mode(&self, address: PciBusId, mode: ComputeMode) -> Result<(), NvmlError> {
        self.disk.card_effect(|| self.cards.set_compute_mode(address, mode))
    }

    fn processes(&self, address: PciBusId) -> Reading<Vec<Process>> {
        self.cards.processes(address)
    }

    fn gpu_instance_profiles(&self, address: PciBusId) -> Reading<Vec<GpuInstanceProfile>> {
        self.disk.card_look()?;
        self.cards.gpu_instance_profiles(address)
    }

    fn compute_instance_profiles(
        &self,
        address: PciBusId,
        gpu_instance: u32,
    ) -> Result<Vec<ComputeInstanceProfile>, NvmlError> {
        self.disk.card_look()?;
        self.cards.compute_instance_profiles(address, gpu_instance)
    }

    fn gpu_instances(&self, address: PciBusId) -> Result<Vec<GpuInstance>, NvmlError> {
        self.disk.card_look()?;
        self.cards.gpu_instances(address)
    }

    fn set_mig_mode(&self, address: PciBusId, on: bool) -> Result<MigModeSwitch, NvmlError> {
        self.disk.card_effect(|| self.cards.set_mig_mode(address, on))
    }

    fn create_gpu_instance(
        &self,
        address: PciBusId,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstance, NvmlError> {
        self.disk.card_effect(|| self.cards.create_gpu_instance(address, profile_id, placement))
    }

    fn destroy_gpu_instance(&self, address: PciBusId, gpu_instance: u32) -> Result<(), NvmlError> {
        self.disk.card_effect(|| self.cards.destroy_gpu_instance(address, gpu_instance))
    }

    fn create_compute_instance(
        &self,
        address: PciBusId,
        gpu_instance: u32,
        profile_id: u32,
    ) -> Result<ComputeInstance, NvmlError> {
        self.disk.card_effect(|| self.cards.create_compute_instance(address, gpu_instance, profile_id))
    }

    fn destroy_compute_instance(
        &self,
        address: PciBusId,
        gpu_instance: u32,
        compute_instance: u32,
    ) -> Result<(), NvmlError> {
        self.disk.card_effect(|| self.cards.destroy_compute_instance(address, gpu_instance, compute_instance))
    }
}
