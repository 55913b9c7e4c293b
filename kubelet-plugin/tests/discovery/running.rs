//! Keeping up with a machine that changes.

use std::sync::Arc;
use std::time::Duration;

use tessera_inventory::Machine;
use tessera_inventory::machine::Health;
use tessera_kubelet_plugin::discovery::{self, DiscoveryOptions};
use tessera_nvml::{Library, Nvml};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::machine::EmulatedMachine;

/// Longer than anything here takes; a test that waits as long fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Discovery at work on an emulated machine, until dropped.
struct Running {
    emulated: EmulatedMachine,
    hardware: watch::Sender<Option<Arc<dyn Nvml>>>,
    machines: watch::Receiver<Option<Arc<Machine>>>,
    _stop: DropGuard,
}

impl Running {
    fn start(hardware: &str, interval: Duration) -> Self {
        let emulated = EmulatedMachine::new(hardware);
        let (hardware, receiver) = watch::channel(None);
        let (sender, machines) = watch::channel(None);
        let options = DiscoveryOptions {
            interval,
            unsettled_interval: interval,
            ..DiscoveryOptions::new(emulated.root().join("sys"))
        };
        let cancelled = CancellationToken::new();
        tokio::spawn(discovery::run(receiver, options, sender, cancelled.clone()));
        Running { emulated, hardware, machines, _stop: cancelled.drop_guard() }
    }

    fn install_driver(&self) {
        let library: Arc<dyn Nvml> = Arc::new(Library::open_below(&self.emulated.root()).unwrap());
        self.hardware.send_replace(Some(library));
    }

    async fn until(&mut self, is: impl Fn(&Machine) -> bool) -> Arc<Machine> {
        let found = self.machines.wait_for(|machine| machine.as_deref().is_some_and(&is));
        let found =
            tokio::time::timeout(PATIENCE, found).await.expect("the machine never came to that").unwrap();
        Arc::clone(found.as_ref().unwrap())
    }
}

fn lost(machine: &Machine) -> usize {
    machine.cards.iter().filter(|card| card.health == Health::Lost).count()
}

#[tokio::test]
async fn a_driver_that_comes_later_is_found_at_once() {
    let mut running = Running::start("t4", PATIENCE * 10);
    assert!(running.machines.borrow().is_none());
    running.install_driver();
    let machine = running.until(|machine| machine.cards.len() == 1).await;
    assert_eq!(machine.cards[0].product_name.as_deref(), Some("Tesla T4"));
}

#[tokio::test]
async fn a_driver_that_goes_leaves_its_cards_behind_as_lost() {
    let mut running = Running::start("a30-x2", PATIENCE * 10);
    running.install_driver();
    running.until(|machine| lost(machine) == 0).await;
    running.hardware.send_replace(None);
    running.until(|machine| lost(machine) == 2).await;
    running.install_driver();
    running.until(|machine| lost(machine) == 0).await;
}

#[tokio::test]
async fn an_unchanged_machine_is_sent_once() {
    let mut running = Running::start("a30-x2", Duration::from_millis(20));
    running.install_driver();
    running.until(|machine| machine.cards.len() == 2).await;
    running.machines.borrow_and_update();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!running.machines.has_changed().unwrap());
}
