//! MIG while the driver fails: each call of each operation in turn, before it did its work and after.

use tessera_nvml::{GpuInstance, GpuInstanceProfile, Library, Nvml, NvmlError, PciBusId};

use crate::machine::EmulatedMachine;

/// A card in MIG mode with one partition in it, and a second about to be made.
struct Bench {
    machine: EmulatedMachine,
    library: Library,
    card: PciBusId,
    profile: GpuInstanceProfile,
}

impl Bench {
    fn new() -> Self {
        let machine = EmulatedMachine::new("hgx-h100-80gb");
        let library = Library::open_below(&machine.root()).unwrap();
        let card = library.addresses().unwrap()[0].clone().unwrap();
        library.set_mig_mode(card, true).unwrap();
        let profiles = library.gpu_instance_profiles(card).unwrap().unwrap();
        let profile = profiles.into_iter().find(|profile| profile.name == "2g.20gb").unwrap();
        let bench = Bench { machine, library, card, profile };
        let gpu = bench.make(0).unwrap();
        bench.fill(gpu.id).unwrap();
        bench
    }

    fn make(&self, position: usize) -> Result<GpuInstance, NvmlError> {
        self.library.create_gpu_instance(self.card, self.profile.id, self.profile.placements[position])
    }

    /// With the compute instance of all its slices.
    fn fill(&self, gpu_instance: u32) -> Result<String, NvmlError> {
        let widths = self.library.compute_instance_profiles(self.card, gpu_instance)?;
        let whole = widths.iter().find(|width| width.compute_slices == self.profile.compute_slices).unwrap();
        let compute = self.library.create_compute_instance(self.card, gpu_instance, whole.id)?;
        Ok(compute.uuid.unwrap())
    }

    fn list(&self) -> Vec<GpuInstance> {
        self.library.gpu_instances(self.card).unwrap()
    }

    /// Fails one call once; `after` it did its work where it says so.
    fn fault(&self, call: &str, after: bool) {
        let after = if after { "--after" } else { "" };
        self.machine.let_happen(&format!("fault --card 0 --call {call} --error UNKNOWN --times 1 {after}"));
    }

    fn restore(&self) {
        self.machine.let_happen("restore");
    }

    /// Destroys all but the first partition.
    fn clear(&self) {
        for instance in self.list().iter().filter(|it| it.placement != self.profile.placements[0]) {
            for compute in &instance.compute_instances {
                self.library.destroy_compute_instance(self.card, instance.id, compute.id).unwrap();
            }
            self.library.destroy_gpu_instance(self.card, instance.id).unwrap();
        }
    }
}

#[test]
fn making_a_gpu_instance() {
    let bench = Bench::new();
    let creation = "nvmlDeviceCreateGpuInstanceWithPlacement";
    for (call, after, exists) in
        [(creation, false, false), (creation, true, true), ("nvmlGpuInstanceGetInfo", false, true)]
    {
        bench.fault(call, after);
        let error = bench.make(1).unwrap_err();
        assert_eq!(error.function(), Some(call));
        bench.restore();
        let listed = bench.list();
        assert_eq!(listed.len() == 2, exists, "{call}, after: {after}");
        assert!(!exists || listed.iter().any(|it| it.placement == bench.profile.placements[1]));
        bench.clear();
    }
    bench.make(1).unwrap();
}

#[test]
fn making_a_compute_instance() {
    let bench = Bench::new();
    let creation = "nvmlGpuInstanceCreateComputeInstance";
    for (call, after, exists) in [
        ("nvmlDeviceGetGpuInstanceById", false, false),
        (creation, false, false),
        (creation, true, true),
        ("nvmlComputeInstanceGetInfo", false, true),
        ("nvmlDeviceIsMigDeviceHandle", false, true),
        ("nvmlDeviceGetUUID", false, false),
    ] {
        let gpu = bench.make(1).unwrap();
        bench.fault(call, after);
        assert!(bench.fill(gpu.id).is_err(), "{call}");
        bench.restore();
        let listed = bench.list();
        let made = listed.iter().find(|it| it.id == gpu.id).unwrap();
        assert_eq!(made.compute_instances.len() == 1, exists, "{call}, after: {after}");
        bench.clear();
    }
}

#[test]
fn destroying() {
    let bench = Bench::new();
    for (call, after, compute, gpu) in [
        ("nvmlComputeInstanceDestroy", false, true, true),
        ("nvmlComputeInstanceDestroy", true, false, true),
        ("nvmlGpuInstanceGetComputeInstanceById", false, true, true),
        ("nvmlGpuInstanceDestroy", false, false, true),
        ("nvmlGpuInstanceDestroy", true, false, false),
    ] {
        let made = bench.make(1).unwrap();
        bench.fill(made.id).unwrap();
        bench.fault(call, after);
        let library = &bench.library;
        let outcome = library
            .destroy_compute_instance(bench.card, made.id, 0)
            .and_then(|()| library.destroy_gpu_instance(bench.card, made.id));
        assert_eq!(outcome.unwrap_err().function().map(|name| name.starts_with(call)), Some(true));
        bench.restore();
        let listed = bench.list();
        let left = listed.iter().find(|it| it.id == made.id);
        assert_eq!(left.is_some(), gpu, "{call}, after: {after}");
        assert_eq!(
            left.is_some_and(|it| !it.compute_instances.is_empty()),
            compute,
            "{call}, after: {after}"
        );
        bench.clear();
    }
}

#[test]
fn listing() {
    let bench = Bench::new();
    let known = bench.list();
    for call in [
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetGpuInstances",
        "nvmlGpuInstanceGetInfo",
        "nvmlGpuInstanceGetComputeInstances",
        "nvmlComputeInstanceGetInfo",
        "nvmlDeviceIsMigDeviceHandle",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetUUID",
    ] {
        bench.fault(call, false);
        let error = bench.library.gpu_instances(bench.card).unwrap_err();
        assert!(error.function().is_some_and(|name| name.starts_with(call)), "{call}: {error}");
        bench.restore();
        assert_eq!(bench.list(), known, "{call}");
    }
    // A session that knows no profiles yet asks for those first.
    for call in ["nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetGpuInstancePossiblePlacements"] {
        let fresh = Library::open_below(&bench.machine.root()).unwrap();
        bench.fault(call, false);
        assert!(fresh.gpu_instances(bench.card).is_err(), "{call}");
        bench.restore();
        assert_eq!(fresh.gpu_instances(bench.card).unwrap(), known, "a failure is not remembered");
    }
}

#[test]
fn switching_the_mode() {
    let bench = Bench::new();
    let other = bench.library.addresses().unwrap()[1].clone().unwrap();
    for (call, after, on) in [
        ("nvmlDeviceSetMigMode", false, false),
        ("nvmlDeviceGetMigMode", false, false),
        ("nvmlDeviceSetMigMode", true, true),
    ] {
        bench.machine.let_happen(&format!(
            "fault --card 1 --call {call} --error UNKNOWN --times 1 {}",
            if after { "--after" } else { "" }
        ));
        assert!(bench.library.set_mig_mode(other, true).is_err(), "{call}");
        bench.restore();
        assert_eq!(bench.library.identify(other).unwrap().mig_mode, Some(on), "{call}, after: {after}");
    }
}

/// Lists while somebody else makes and destroys: what is listed is whole, or the list says that it failed, which it
/// must not.
#[test]
fn listing_while_partitions_come_and_go() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| {
            for _ in 0..30 {
                let gpu = bench.make(1).unwrap();
                bench.fill(gpu.id).unwrap();
                bench.library.destroy_compute_instance(bench.card, gpu.id, 0).unwrap();
                bench.library.destroy_gpu_instance(bench.card, gpu.id).unwrap();
            }
        });
        while !churn.is_finished() {
            let listed = bench.list();
            let first = listed.iter().find(|it| it.placement == bench.profile.placements[0]).unwrap();
            assert!(first.compute_instances[0].uuid.is_some());
        }
    });
    assert_eq!(bench.list().len(), 1);
}
