//! What discovery reports about a card depends on who made its GPU instances.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tessera_api::PciBusId;
use tessera_api::health::HealthFault;
use tessera_inventory::Machine;
use tessera_journal::JournalError;
use tessera_kubelet_plugin::discovery::{self, DiscoveryOptions, OwnPartition, OwnPartitions};
use tessera_nvml::{GpuInstance, Library, Nvml};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::machine::EmulatedMachine;

const PATIENCE: Duration = Duration::from_secs(60);

/// A journal with an answer that a test sets.
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
    own.0.lock().unwrap().push(OwnPartition { placement, gpu_instance: None, present: Vec::new() });
    own_sender.send_replace(Some(own.clone() as Arc<dyn OwnPartitions>));
    let found = tokio::time::timeout(PATIENCE, machines.wait_for(Option::is_some)).await.unwrap().unwrap();
    let mig = found.as_ref().unwrap().cards[0].mig.clone().unwrap();
    drop(found);
    assert_eq!(mig.instances.iter().map(|instance| instance.id).collect::<Vec<_>>(), [theirs.id]);
    assert!(mig.mode && mig.instances[0].compute_instances[0].uuid.is_some());

    // An administrator's partition that is destroyed disappears from the facts too.
    library.destroy_compute_instance(card, theirs.id, 0).unwrap();
    library.destroy_gpu_instance(card, theirs.id).unwrap();
    let empty = |machine: &Option<Arc<Machine>>| {
        let mig = machine.as_ref().and_then(|machine| machine.cards[0].mig.as_ref());
        mig.is_some_and(|mig| mig.instances.is_empty())
    };
    tokio::time::timeout(PATIENCE, machines.wait_for(empty)).await.unwrap().unwrap();
}
