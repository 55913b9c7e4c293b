//! Reading a card whose GPU instances come and go.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tessera_api::facts::{ComputeInstance, GpuInstanceProfile, Placement};
use tessera_nvml::{Identity, NvmlError};

use super::*;
use crate::discovery::OwnPartition;
use tessera_journal::JournalError;

/// A card whose instances a test creates and removes.
#[derive(Default)]
struct Fake {
    profiles: Mutex<Option<Vec<GpuInstanceProfile>>>,
    instances: Mutex<Option<Vec<GpuInstance>>>,
    looks: AtomicUsize,
    /// Instances appearing after this many looks.
    later: Mutex<Option<(usize, Vec<GpuInstance>)>>,
}

const ON: Reading<MigMode> = Ok(Some(MigMode { current: true, pending: true }));
const OFF: Reading<MigMode> = Ok(Some(MigMode { current: false, pending: false }));

fn failed<T>(function: &'static str) -> Result<T, NvmlError> {
    Err(NvmlError::Call { function, code: 999, text: "Unknown".into() })
}

fn slice() -> GpuInstanceProfile {
    GpuInstanceProfile {
        id: 19,
        name: "1g.10gb".into(),
        compute_slices: 1,
        max_instances: 7,
        memory_bytes: 9984 << 20,
        multiprocessors: 16,
        copy_engines: 1,
        decoders: 1,
        encoders: 0,
        jpeg_engines: 1,
        ofa_engines: 0,
        placements: (0..7).map(|start| Placement { start, size: 1 }).collect(),
    }
}

fn instance(id: u32, start: u32) -> GpuInstance {
    let compute = ComputeInstance {
        id: 0,
        profile_id: 3,
        placement: Placement { start: 0, size: 1 },
        multiprocessors: Some(16),
        uuid: Some(format!("MIG-{id}")),
    };
    GpuInstance {
        id,
        profile_id: 19,
        placement: Placement { start, size: 1 },
        compute_instances: vec![compute],
    }
}

impl Fake {
    fn with(instances: impl Into<Vec<GpuInstance>>) -> Self {
        let fake = Fake::default();
        *fake.profiles.lock().unwrap() = Some(vec![slice()]);
        *fake.instances.lock().unwrap() = Some(instances.into());
        fake
    }

    fn read(
        &self,
        mode: Reading<MigMode>,
        own: Option<&dyn OwnPartitions>,
        known: Option<Mig>,
    ) -> (Option<Mig>, usize) {
        let pci = "0000:3b:00.0".parse().unwrap();
        let reader = MigReader { nvml: self, pci, uuid: "GPU-1", own };
        let mut problems = Problems::default();
        let mig = reader.read(mode, Some(Architecture::HOPPER), known, &mut problems);
        (mig, problems.into_vec().len())
    }
}

impl Nvml for Fake {
    fn identify(&self, _: PciBusId) -> Result<Identity, NvmlError> {
        unreachable!("discovery does not identify")
    }

    fn gpu_instance_profiles(&self, _: PciBusId) -> Reading<Vec<GpuInstanceProfile>> {
        match &*self.profiles.lock().unwrap() {
            Some(profiles) => Ok(Some(profiles.clone())),
            None => failed("nvmlDeviceGetGpuInstanceProfileInfoV"),
        }
    }

    fn gpu_instances(&self, _: PciBusId) -> Result<Vec<GpuInstance>, NvmlError> {
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        if let Some((_, later)) = self.later.lock().unwrap().take_if(|(after, _)| *after == look) {
            *self.instances.lock().unwrap() = Some(later);
        }
        match &*self.instances.lock().unwrap() {
            Some(instances) => Ok(instances.clone()),
            None => failed("nvmlDeviceGetGpuInstances"),
        }
    }
}

/// A journal with a fixed answer.
struct Own(Vec<OwnPartition>);

impl OwnPartitions for Own {
    fn of_card(&self, _: PciBusId, _: &str) -> Result<Vec<OwnPartition>, JournalError> {
        Ok(self.0.clone())
    }
}

fn ids(mig: Option<Mig>) -> Vec<u32> {
    mig.unwrap().instances.iter().map(|instance| instance.id).collect()
}

#[test]
fn an_empty_cards_facts() {
    let (mig, problems) = Fake::with([]).read(OFF, None, None);
    let mig = mig.unwrap();
    assert_eq!((mig.mode, mig.mode_switch_needs_reset), (false, false));
    assert_eq!((mig.profiles.len(), mig.memory_slices(), problems), (1, 7, 0));
    assert_eq!(Fake::with([]).read(Ok(None), None, None), (None, 0), "a card without MIG");
}

#[test]
fn instances_of_others_are_told_with_all_that_is_in_them() {
    let own = Own(vec![OwnPartition {
        placement: Placement { start: 6, size: 1 },
        gpu_instance: Some(9),
        present: vec![],
        not_released: false,
    }]);
    let fake = Fake::with([instance(9, 6), instance(13, 0)]);
    let (mig, problems) = fake.read(ON, Some(&own), None);
    let mig = mig.unwrap();
    assert_eq!((mig.instances.len(), problems), (1, 0));
    let other = &mig.instances[0];
    assert_eq!((other.id, other.placement.start), (13, 0));
    let compute = &other.compute_instances[0];
    assert_eq!((compute.multiprocessors, compute.uuid.as_deref()), (Some(16), Some("MIG-13")));
}

#[test]
fn one_of_ours_that_came_and_went_during_the_look_is_nobody_elses() {
    let own = Own(vec![]);
    let fake = Fake::with([instance(9, 6), instance(13, 0)]);
    *fake.later.lock().unwrap() = Some((1, vec![instance(13, 0)]));
    assert_eq!(ids(fake.read(ON, Some(&own), None).0), [13]);
}

#[test]
fn what_can_not_be_read_stays() {
    let fake = Fake::with([instance(13, 0)]);
    let (known, _) = fake.read(ON, None, None);
    *fake.profiles.lock().unwrap() = None;
    *fake.instances.lock().unwrap() = None;
    assert_eq!(fake.read(ON, None, known.clone()), (known.clone(), 2));
    assert_eq!(fake.read(failed("nvmlDeviceGetMigMode"), None, known.clone()), (known, 1));
}

#[test]
fn nothing_is_offered_of_a_card_whose_instances_were_never_read() {
    let fake = Fake::with([]);
    *fake.instances.lock().unwrap() = None;
    let (mut mig, problems) = fake.read(ON, None, None);
    assert_eq!(problems, 1);
    for _ in 0..2 {
        assert_eq!(mig.as_ref().map(|mig| (mig.mode, mig.profiles.len())), Some((true, 0)));
        mig = fake.read(ON, None, mig).0;
    }
}

#[test]
fn a_driver_that_tells_profiles_only_in_the_mode_takes_none_back() {
    let fake = Fake::with([]);
    let (known, _) = fake.read(ON, None, None);
    *fake.profiles.lock().unwrap() = Some(Vec::new());
    let (mig, problems) = fake.read(OFF, None, known);
    assert_eq!((mig.unwrap().profiles.len(), problems), (1, 0));
}
