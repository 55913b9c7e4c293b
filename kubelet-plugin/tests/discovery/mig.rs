//! Discovery's report about a card depends on the owner of its GPU instances.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::resource::v1::Device;
use tessera_api::PciBusId;
use tessera_api::health::HealthFault;
use tessera_inventory::pool::PoolOptions;
use tessera_inventory::{Machine, Pool};
use tessera_journal::JournalError;
use tessera_kubelet_plugin::discovery::{self, DiscoveryOptions, OwnPartition, OwnPartitions};
use tessera_nvml::{GpuInstance, Library, Nvml};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::machine::EmulatedMachine;

const PATIENCE: Duration = Duration::from_secs(60);

/// A journal whose answer is set by a test.
#[derive(Default)]
struct Own(Mutex<Vec<OwnPartition>>);

impl OwnPartitions for Own {
    fn of_card(&self, _: PciBusId, _: &str) -> Result<Vec<OwnPartition>, JournalError> {
        Ok(self.0.lock().unwrap().clone())
    }
}

/// Makes a complete partition of the smallest profile.
fn make(library: &Library, card: PciBusId, place: usize) -> GpuInstance {
    let profile = library.gpu_instance_profiles(card).unwrap().unwrap().remove(0);
    let gpu = library.create_gpu_instance(card, profile.id, profile.placements[place]).unwrap();
    let width = library.compute_instance_profiles(card, gpu.id).unwrap()[0];
    library.create_compute_instance(card, gpu.id, width.id).unwrap();
    gpu
}

#[tokio::test]
async fn an_xid_of_a_partition_concerns_its_memory_slices() {
    let emulated = EmulatedMachine::new("hgx-h100-80gb");
    let library = Library::open_below(&emulated.root()).unwrap();
    let card = library.addresses().unwrap()[0].clone().unwrap();
    library.set_mig_mode(card, true).unwrap();
    let instance = make(&library, card, 6);

    let (_hardware, hardware) = watch::channel(Some(Arc::new(library) as Arc<dyn Nvml>));
    let own: Arc<dyn OwnPartitions> = Arc::new(Own::default());
    let (_own, own) = watch::channel(Some(own));
    let (sender, mut machines) = watch::channel::<Option<Arc<Machine>>>(None);
    let options = DiscoveryOptions {
        interval: Duration::from_millis(50),
        ..DiscoveryOptions::new(emulated.root().join("sys"))
    };
    let cancelled = CancellationToken::new();
    let _stop = cancelled.clone().drop_guard();
    tokio::spawn(discovery::run(hardware, own, options, sender, cancelled));
    tokio::time::timeout(PATIENCE, machines.wait_for(Option::is_some)).await.unwrap().unwrap();
    emulated.let_happen("fault --call NVML_FI_DEV_GET_GPU_RECOVERY_ACTION --error NOT_SUPPORTED");
    emulated.let_happen(&format!("xid --card 0 --gpu-instance {} 48", instance.id));
    let wanted = [HealthFault::xid(48, Some(instance.placement))].into();
    let faulty = |machine: &Option<Arc<Machine>>| {
        machine.as_ref().is_some_and(|machine| machine.cards[0].faults == wanted)
    };
    tokio::time::timeout(PATIENCE, machines.wait_for(faulty)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_partition_that_is_not_released_concerns_its_memory_slices_until_it_is_gone() {
    let emulated = EmulatedMachine::new("hgx-h100-80gb");
    let library = Library::open_below(&emulated.root()).unwrap();
    let card = library.addresses().unwrap()[0].clone().unwrap();
    library.set_mig_mode(card, true).unwrap();
    let placement = make(&library, card, 6).placement;
    let journal = Arc::new(Own::default());
    let held = OwnPartition { placement, gpu_instance: None, present: Vec::new(), not_released: true };
    journal.0.lock().unwrap().push(held);

    let (_hardware, hardware) = watch::channel(Some(Arc::new(library) as Arc<dyn Nvml>));
    let (_own, own) = watch::channel(Some(journal.clone() as Arc<dyn OwnPartitions>));
    let (sender, mut machines) = watch::channel::<Option<Arc<Machine>>>(None);
    let options = DiscoveryOptions::new(emulated.root().join("sys"));
    let look_again = options.look_again.clone();
    let cancelled = CancellationToken::new();
    let _stop = cancelled.clone().drop_guard();
    tokio::spawn(discovery::run(hardware, own, options, sender, cancelled));
    let has = |faults: &[HealthFault]| {
        let faults = faults.iter().cloned().collect();
        move |machine: &Option<Arc<Machine>>| {
            machine.as_ref().is_some_and(|machine| machine.cards[0].faults == faults)
        }
    };
    let wanted = has(&[HealthFault::partition_not_released(placement)]);
    tokio::time::timeout(PATIENCE, machines.wait_for(wanted)).await.unwrap().unwrap();

    let pool = Pool::new(machines.borrow().as_ref().unwrap(), &PoolOptions::new("gpu.tessera.dev"));
    let is_tainted = |device: &Device| {
        let mut taints = device.taints.iter().flatten();
        taints.any(|taint| taint.value.as_deref() == Some("partition-not-released"))
    };
    let names = pool.devices().filter(is_tainted).map(|device| device.name);
    let tainted: BTreeSet<String> = names.filter(|name| name.starts_with("gpu-18-00")).collect();
    assert_eq!(
        tainted,
        [
            "gpu-18-00",
            "gpu-18-00-mig-1g10gb-6",
            "gpu-18-00-mig-1g20gb-6",
            "gpu-18-00-mig-3g40gb-4",
            "gpu-18-00-mig-7g80gb-0",
        ]
        .map(str::to_owned)
        .into()
    );

    journal.0.lock().unwrap().clear();
    look_again.notify_one();
    tokio::time::timeout(PATIENCE, machines.wait_for(has(&[]))).await.unwrap().unwrap();
}

#[tokio::test]
async fn instances_are_told_once_it_is_known_whose_they_are() {
    let emulated = EmulatedMachine::new("hgx-h100-80gb");
    let library = Library::open_below(&emulated.root()).unwrap();
    let card = library.addresses().unwrap()[0].clone().unwrap();
    library.set_mig_mode(card, true).unwrap();
    let (ours, theirs) = (make(&library, card, 6), make(&library, card, 0));

    let (_hardware, hardware) = watch::channel(Some(Arc::new(library.clone()) as Arc<dyn Nvml>));
    let (own_sender, own_receiver) = watch::channel(None);
    let (sender, mut machines) = watch::channel::<Option<Arc<Machine>>>(None);
    let options = DiscoveryOptions {
        interval: Duration::from_millis(50),
        ..DiscoveryOptions::new(emulated.root().join("sys"))
    };
    let cancelled = CancellationToken::new();
    let _stop = cancelled.clone().drop_guard();
    tokio::spawn(discovery::run(hardware, own_receiver, options, sender, cancelled));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(machines.borrow().is_none(), "nobody knows yet whose the instances are");

    let own = Arc::new(Own::default());
    let placement = ours.placement;
    own.0.lock().unwrap().push(OwnPartition {
        placement,
        gpu_instance: None,
        present: Vec::new(),
        not_released: false,
    });
    own_sender.send_replace(Some(own.clone() as Arc<dyn OwnPartitions>));
    let found = tokio::time::timeout(PATIENCE, machines.wait_for(Option::is_some)).await.unwrap().unwrap();
    let mig = found.as_ref().unwrap().cards[0].mig.clone().unwrap();
    drop(found);
    assert_eq!(mig.instances.iter().map(|instance| instance.id).collect::<Vec<_>>(), [theirs.id]);
    assert!(mig.mode && mig.instances[0].compute_instances[0].uuid.is_some());

    // A destroyed partition of an administrator disappears from the facts too.
    library.destroy_compute_instance(card, theirs.id, 0).unwrap();
    library.destroy_gpu_instance(card, theirs.id).unwrap();
    let empty = |machine: &Option<Arc<Machine>>| {
        let mig = machine.as_ref().and_then(|machine| machine.cards[0].mig.as_ref());
        mig.is_some_and(|mig| mig.instances.is_empty())
    };
    tokio::time::timeout(PATIENCE, machines.wait_for(empty)).await.unwrap().unwrap();
}
