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
        let (_, nobody) = watch::channel(None);
        tokio::spawn(discovery::run(receiver, nobody, options, sender, cancelled.clone()));
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

#[tokio::test]
async fn a_card_that_falls_off_is_noticed_at_once_and_again_when_it_is_back() {
    let mut running = Running::start("hgx-h100-80gb", Duration::from_secs(1));
    running.install_driver();
    let whole = running.until(|machine| machine.cards.len() == 8 && lost(machine) == 0).await;
    running.emulated.let_happen("lose --card 5");
    let broken = running.until(|machine| lost(machine) == 1).await;
    assert_eq!(broken.cards[5].health, Health::Lost);
    assert_eq!(broken.cards[5].uuid, whole.cards[5].uuid);
    assert_eq!(broken.pairs, whole.pairs, "what is published of a card stays while claims may hold it");
    running.emulated.let_happen("restore");
    let again = running.until(|machine| *machine == *whole).await;
    assert_eq!(again, whole);
}

#[tokio::test]
async fn an_xid_marks_its_card_without_waiting_for_the_next_look() {
    let mut running = Running::start("a30-x2", PATIENCE * 10);
    running.install_driver();
    running.until(|machine| machine.cards.len() == 2).await;
    let unhealthy = Health::Unhealthy { reason: "xid-48".into() };
    let heard = tokio::time::timeout(PATIENCE, async {
        // Listening begins a little after the cards were read.
        while running.machines.borrow().as_ref().unwrap().cards[1].health != unhealthy {
            running.emulated.let_happen("xid --card 1 48");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    heard.await.expect("the XID was not heard of");
    assert_eq!(running.machines.borrow().as_ref().unwrap().cards[0].health, Health::Healthy);
}

#[tokio::test]
async fn the_xid_of_a_program_marks_nothing() {
    let mut running = Running::start("a30-x2", Duration::from_millis(100));
    running.install_driver();
    running.until(|machine| machine.cards.len() == 2).await;
    running.machines.borrow_and_update();
    for _ in 0..20 {
        running.emulated.let_happen("xid --card 1 31");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!running.machines.has_changed().unwrap());
}

#[tokio::test]
async fn a_link_that_goes_down_changes_the_machine() {
    let mut running = Running::start("dgx-1v", Duration::from_millis(100));
    running.install_driver();
    let links = |machine: &Machine| machine.cards[0].nvlinks.as_ref().map_or(0, Vec::len);
    running.until(|machine| links(machine) == 6).await;
    running.emulated.let_happen("link --card 0 --link 2 down");
    running.until(|machine| links(machine) == 5).await;
}
