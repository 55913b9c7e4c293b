//! Discovery keeps up with a changing machine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tessera_api::health::{HealthClass, HealthFault, Recovery};
use tessera_inventory::Machine;
use tessera_inventory::machine::Health;
use tessera_kubelet_plugin::discovery::{self, DiscoveryOptions, Looks};
use tessera_kubelet_plugin::prepare::DriverFilesState;
use tessera_nvml::{Library, Nvml};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::machine::EmulatedMachine;

/// Longer than anything here takes; a test waiting this long fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Discovery running on an emulated machine, until dropped.
struct Running {
    emulated: EmulatedMachine,
    hardware: watch::Sender<Option<Arc<dyn Nvml>>>,
    machines: watch::Receiver<Option<Arc<Machine>>>,
    looks: watch::Receiver<Looks>,
    driver_files: watch::Sender<DriverFilesState>,
    _stop: DropGuard,
}

impl Running {
    fn start(hardware: &str, interval: Duration) -> Self {
        Self::on(EmulatedMachine::new(hardware), interval, PATIENCE)
    }

    fn on(emulated: EmulatedMachine, interval: Duration, deadline: Duration) -> Self {
        let (hardware, receiver) = watch::channel(None);
        let (sender, machines) = watch::channel(None);
        let (looks_sender, looks) = watch::channel(Looks::default());
        let (driver_files, files) = watch::channel(DriverFilesState::default());
        let options = DiscoveryOptions {
            interval,
            unsettled_interval: interval,
            deadline,
            away: Duration::from_millis(300),
            looks: looks_sender,
            driver_files: files,
            ..DiscoveryOptions::new(emulated.root().join("sys"))
        };
        let cancelled = CancellationToken::new();
        let (_, nobody) = watch::channel(None);
        tokio::spawn(discovery::run(receiver, nobody, options, sender, cancelled.clone()));
        Running { emulated, hardware, machines, looks, driver_files, _stop: cancelled.drop_guard() }
    }

    fn driver_files_are(&self, missing: Option<&str>) {
        self.driver_files.send_modify(|state| state.missing = missing.map(str::to_owned));
    }

    fn install_driver(&self) {
        let library: Arc<dyn Nvml> = Arc::new(Library::open_below(&self.emulated.root()).unwrap());
        self.hardware.send_replace(Some(library));
    }

    /// Raises an XID until discovery reports it: listening to events starts a little after the cards were read.
    async fn hear_of_xid(&self, card: usize, xid: u64) {
        let name = format!("xid-{xid}");
        let is_heard = || names(self.machines.borrow().as_ref().unwrap(), card).contains(&name);
        let heard = tokio::time::timeout(PATIENCE, async {
            while !is_heard() {
                self.emulated.let_happen(&format!("xid --card {card} {xid}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        heard.await.expect("the XID was not heard of");
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

/// Such a card could be allocated and never be prepared.
#[tokio::test]
async fn a_card_without_a_minor_number_has_a_fault() {
    let emulated = EmulatedMachine::new("a30-x2");
    emulated.let_happen("fault --call nvmlDeviceGetMinorNumber --card 1 --error NOT_SUPPORTED");
    let mut running = Running::on(emulated, Duration::from_millis(100), PATIENCE);
    running.install_driver();
    let machine = running.until(|machine| machine.cards.len() == 2).await;
    assert_eq!([0, 1].map(|card| names(&machine, card)), [vec![], vec!["minor-number".to_owned()]]);
    let told = machine.cards[1].faults.first().unwrap().to_string();
    assert!(told.contains("cannot be given to containers") && !told.contains("reset"), "{told}");
    let unread = running.looks.borrow().unread.join("; ");
    assert!(unread.contains("minor of 0000:") && unread.contains("nvmlDeviceGetMinorNumber"), "{unread}");
    running.emulated.let_happen("restore");
    running.until(|machine| machine.cards.iter().all(|card| card.faults.is_empty())).await;
    // A known fact is not dropped for an error that may pass.
    running.emulated.let_happen("fault --call nvmlDeviceGetMinorNumber --error UNKNOWN");
    running.looks.wait_for(|looks| !looks.unread.is_empty()).await.unwrap();
    assert!(running.machines.borrow().as_ref().unwrap().cards.iter().all(|card| card.faults.is_empty()));
}

/// Beside another fault of one card, and only while they are missing.
#[tokio::test]
async fn cards_whose_drivers_files_are_missing_have_a_fault() {
    let mut running = Running::start("a30-x2", PATIENCE * 10);
    running.install_driver();
    running
        .until(|machine| machine.cards.len() == 2 && machine.cards.iter().all(|card| card.faults.is_empty()))
        .await;
    running.driver_files_are(Some("reboot"));
    let fault = HealthFault::new(HealthClass::DriverFiles);
    running.until(|machine| machine.cards.iter().all(|card| card.faults.contains(&fault))).await;
    running.driver_files_are(None);
    running.until(|machine| machine.cards.iter().all(|card| card.faults.is_empty())).await;
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
    let unhealthy = xid_with_its_recommendation();
    let heard = tokio::time::timeout(PATIENCE, async {
        // Listening to events starts a little after the cards were read.
        while running.machines.borrow().as_ref().unwrap().cards[1].faults != unhealthy {
            running.emulated.let_happen("xid --card 1 48");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    heard.await.expect("the XID was not heard of");
    assert_eq!(running.machines.borrow().as_ref().unwrap().cards[0].faults, [].into());
}

/// XID 48 of a card for which the driver recommends a reset at the same time.
fn xid_with_its_recommendation() -> BTreeSet<HealthFault> {
    [HealthFault::xid(48, None), HealthFault::new(HealthClass::RecoveryAction)].into()
}

fn healths(machine: &Machine) -> Vec<Health> {
    machine.cards.iter().map(|card| card.health.clone()).collect()
}

#[tokio::test]
async fn a_card_that_hangs_hides_nothing_of_the_others() {
    let emulated = EmulatedMachine::new("a30-x2");
    let mut running = Running::on(emulated, Duration::from_millis(200), Duration::from_millis(500));
    running.install_driver();
    let whole = running.until(|machine| machine.cards.len() == 2).await;
    running.emulated.let_happen("fault --call nvmlDeviceGetMemoryInfo --card 0 --delay-ms 3600000");
    let hung = running.until(|machine| machine.cards[0].health == Health::NotAnswering).await;
    assert_eq!(hung.cards[1], whole.cards[1]);
    let before = running.looks.borrow_and_update().clone();
    let xid = xid_with_its_recommendation();
    running.emulated.let_happen("xid --card 1 48");
    let told = running.until(|machine| machine.cards[1].faults == xid).await;
    assert_eq!(told.cards[0].health, Health::NotAnswering);
    let since = running.looks.wait_for(|looks| looks.any() > before.any()).await.unwrap().clone();
    let hung = since.hanging.first().unwrap();
    assert_eq!((since.complete, since.cards[hung]), (before.complete, before.cards[hung]));

    running.emulated.let_happen("restore --card 0");
    let again = running.until(|machine| machine.cards[0].health == Health::Healthy).await;
    assert_eq!(again.cards[0], whole.cards[0]);
    assert_eq!(again.cards[1].faults, xid, "only a reset takes that away");
    assert!(
        running.looks.wait_for(|looks| looks.complete > before.complete).await.unwrap().hanging.is_empty()
    );
}

#[tokio::test]
async fn a_start_beside_a_card_that_hangs_finds_the_others() {
    for function in ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"] {
        let emulated = EmulatedMachine::new("a30-x2");
        emulated.let_happen(&format!("fault --call {function} --card 0 --delay-ms 3600000"));
        let mut running = Running::on(emulated, Duration::from_millis(200), Duration::from_millis(500));
        running.install_driver();
        let other = running.until(|machine| machine.cards.len() == 1).await;
        assert_eq!(healths(&other), [Health::Healthy], "{function}");
        running.emulated.let_happen("restore");
        let both = running.until(|machine| machine.cards.len() == 2).await;
        assert_eq!(
            (healths(&both), &both.cards[1]),
            (vec![Health::Healthy; 2], &other.cards[0]),
            "{function}"
        );
    }
}

/// A hanging call not about one card: known facts stay, and everything else is read.
#[tokio::test]
async fn what_hangs_of_the_whole_driver_keeps_no_card_from_being_read() {
    let functions = [
        ("nvmlSystemGetDriverVersion", false),
        ("nvmlDeviceGetCount", false),
        ("nvmlDeviceGetTopologyCommonAncestor", false),
        ("nvmlEventSetCreate", true),
    ];
    for (function, from_the_start) in functions {
        let emulated = EmulatedMachine::new("a30-x2");
        let mut running = Running::on(emulated, Duration::from_millis(200), Duration::from_millis(500));
        let hang = |running: &Running| {
            running.emulated.let_happen(&format!("fault --call {function} --delay-ms 3600000"));
        };
        if from_the_start {
            hang(&running);
        }
        running.install_driver();
        let whole = running.until(|machine| machine.cards.len() == 2).await;
        if !from_the_start {
            hang(&running);
        }
        let hangs = running.looks.wait_for(|looks| looks.any() > looks.complete);
        drop(tokio::time::timeout(PATIENCE, hangs).await.expect(function));
        running.emulated.let_happen("lose --card 1");
        let broken = running.until(|machine| lost(machine) == 1).await;
        assert_eq!(broken.cards[0], whole.cards[0], "{function}");
        assert_eq!(
            (&broken.pairs, &broken.driver_version),
            (&whole.pairs, &whole.driver_version),
            "{function}"
        );
        running.emulated.let_happen("restore");
        running.until(|machine| *machine == *whole).await;
    }
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

/// As on hardware before driver 570: only the card's counters show a reset.
#[tokio::test]
async fn a_reset_is_seen_beside_a_driver_that_recommends_nothing_and_opening_it_anew_is_none() {
    let mut running = Running::start("a30-x2", Duration::from_millis(100));
    running.emulated.let_happen("fault --call NVML_FI_DEV_GET_GPU_RECOVERY_ACTION --error NOT_SUPPORTED");
    running.install_driver();
    running.until(|machine| machine.cards.len() == 2).await;
    running.hear_of_xid(1, 48).await;
    // The count must be higher than soon after the reset.
    tokio::time::sleep(Duration::from_secs(2)).await;
    running.hardware.send_replace(None);
    running.until(|machine| lost(machine) == 2).await;
    running.install_driver();
    let again = running.until(|machine| lost(machine) == 0).await;
    assert_eq!(names(&again, 1), ["xid-48"], "nobody reset the card");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(names(running.machines.borrow().as_ref().unwrap(), 1), ["xid-48"]);
    running.emulated.let_happen("reset --card 1");
    running.until(|machine| names(machine, 1).is_empty()).await;
}

/// The pair of `docs/trying.md`.
#[tokio::test]
async fn restore_ends_what_an_xid_began() {
    let mut running = Running::start("hgx-h100-80gb", Duration::from_millis(100));
    running.install_driver();
    running.until(|machine| machine.cards.len() == 8).await;
    running.hear_of_xid(2, 79).await;
    running.until(|machine| names(machine, 2) == ["xid-79", "recovery-action"]).await;
    running.emulated.let_happen("restore");
    running.until(|machine| names(machine, 2).is_empty()).await;
}

/// NVIDIA's catalog has such a card restarted; a driver that calls its XID none has dealt with it, and says so again later.
#[tokio::test]
async fn what_the_driver_calls_none_needs_no_recovery() {
    let mut running = Running::start("hgx-h100-80gb", PATIENCE * 10);
    running.install_driver();
    running.until(|machine| machine.cards.len() == 8).await;
    let recovery = |machine: &Machine, name: &str| {
        let found = machine.cards[2].faults.iter().find(|fault| fault.name() == name);
        found.map(|fault| fault.recovery)
    };
    running.hear_of_xid(2, 46).await;
    assert_eq!(recovery(running.machines.borrow().as_ref().unwrap(), "xid-46"), Some(Recovery::None));
    running.emulated.let_happen("health --card 2 --recovery-action 4");
    running.emulated.let_happen("xid --card 2 154");
    running.until(|machine| recovery(machine, "xid-46") == Some(Recovery::DrainAndReset)).await;
    running.emulated.let_happen("fault --call NVML_FI_DEV_GET_GPU_RECOVERY_ACTION --error NOT_SUPPORTED");
    running.emulated.let_happen("xid --card 2 154");
    let alone = running.until(|machine| recovery(machine, "xid-46") == Some(Recovery::Reset)).await;
    assert_eq!(alone.cards[2].faults.len(), 1, "the catalog alone: {:?}", alone.cards[2].faults);
}

/// A number from a newer driver is shown, and replaces the previous recommendation.
#[tokio::test]
async fn a_recovery_of_a_newer_driver_takes_the_place_of_the_last() {
    let mut running = Running::start("a30-x2", Duration::from_millis(100));
    running.install_driver();
    running.until(|machine| machine.cards.len() == 2).await;
    for (number, recovery) in
        [(1, Recovery::Reset), (5, Recovery::RecoverImexDomain), (23, Recovery::Unknown(23))]
    {
        running.emulated.let_happen(&format!("health --card 1 --recovery-action {number}"));
        let fault = HealthFault::new(HealthClass::RecoveryAction).with_recommendation(Some(recovery));
        running.until(|machine| machine.cards[1].faults == [fault.clone()].into()).await;
    }
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

fn names(machine: &Machine, card: usize) -> Vec<String> {
    machine.cards[card].all_faults().map(|fault| fault.name()).collect()
}

#[tokio::test]
async fn faults_of_a_card_are_its_own_and_go_with_their_cause() {
    let mut running = Running::start("hgx-h100-80gb", Duration::from_millis(100));
    running.install_driver();
    let whole = running.until(|machine| machine.cards.len() == 8).await;
    for (order, name) in [
        ("--uncorrected-errors 2", "ecc-uncorrectable"),
        ("--row-remap-pending true", "row-remap-pending"),
        ("--row-remap-failed true", "row-remap-failed"),
        ("--hot true", "thermal"),
        ("--power-brake true", "power-brake"),
        ("--fabric-mask 1", "fabric"),
        ("--fabric-state not-started", "fabric-not-ready"),
        ("--fabric-state in-progress", "fabric-not-ready"),
        ("--fabric-state failed", "fabric"),
        ("--recovery-action 4", "recovery-action"),
    ] {
        running.emulated.let_happen(&format!("health --card 3 {order}"));
        let broken = running.until(|machine| names(machine, 3) == [name]).await;
        assert!((0..8).filter(|card| *card != 3).all(|card| names(&broken, card).is_empty()), "{name}");
        running.emulated.let_happen("restore --card 3");
        running.until(|machine| *machine == *whole).await;
    }
    running.emulated.let_happen("link --card 3 --link 5 down");
    running.until(|machine| names(machine, 3) == ["nvlink-down"]).await;
    running.emulated.let_happen("link --card 3 --link 5 up");
    running.until(|machine| *machine == *whole).await;
}

/// No program starts on such cards: CUDA returns error 802.
#[tokio::test]
async fn cards_in_confidential_computing_wait_for_their_ready_state() {
    let mut running = Running::start("hgx-h100-80gb", Duration::from_millis(100));
    running.install_driver();
    running.until(|machine| machine.cards.len() == 8 && names(machine, 0).is_empty()).await;
    running.emulated.let_happen("conf-compute --mode not-ready");
    let all = |machine: &Machine, expected: &[&str]| (0..8).all(|card| names(machine, card) == expected);
    let waiting = running.until(|machine| all(machine, &["conf-compute-not-ready"])).await;
    let told = waiting.cards[0].faults.first().unwrap().to_string();
    assert!(told.contains("nvidia-smi conf-compute -srs 1") && !told.contains("reset"), "{told}");
    running.emulated.let_happen("conf-compute --mode ready");
    running.until(|machine| all(machine, &[])).await;
    running.emulated.let_happen("conf-compute --mode not-ready");
    running.until(|machine| all(machine, &["conf-compute-not-ready"])).await;
    running.emulated.let_happen("conf-compute --mode off");
    running.until(|machine| all(machine, &[])).await;
}

#[tokio::test]
async fn a_reset_that_the_driver_no_longer_recommends_takes_the_xid_away() {
    let mut running = Running::start("hgx-h100-80gb", Duration::from_millis(100));
    running.install_driver();
    running.until(|machine| machine.cards.len() == 8).await;
    running.emulated.let_happen("health --card 2 --recovery-action 1 --uncorrected-errors 1");
    let recommended = |machine: &Machine| names(machine, 2) == ["recovery-action", "ecc-uncorrectable"];
    running.until(recommended).await;
    running.emulated.let_happen("xid --card 2 48");
    let broken = running.until(|machine| machine.cards[2].faults.len() == 3).await;
    assert!(broken.cards[2].faults.contains(&HealthFault::xid(48, None)));
    running.emulated.let_happen("reset --card 2");
    running.until(|machine| names(machine, 2).is_empty()).await;
}
