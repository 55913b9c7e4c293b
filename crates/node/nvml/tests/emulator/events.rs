//! What the driver reports by itself.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tessera_nvml::{Event, EventWatch, Library, Nvml, PciBusId};

use crate::machine::EmulatedMachine;

/// Longer than anything here takes; a test that waits as long fails.
const PATIENCE: Duration = Duration::from_secs(60);

struct Listening {
    machine: EmulatedMachine,
    library: Library,
    events: Receiver<Event>,
    watch: EventWatch,
}

impl Listening {
    /// Listening begins a little after the call: this has heard a first event.
    fn start(hardware: &str) -> Self {
        let machine = EmulatedMachine::new(hardware);
        let library = Library::open_below(&machine.root()).unwrap();
        let (sender, events) = channel();
        let watch = library.watch(Box::new(move |event| drop(sender.send(event)))).unwrap();
        let heard = (0..PATIENCE.as_millis() / 100).any(|_| {
            machine.let_happen("xid --card 0 31");
            events.recv_timeout(Duration::from_millis(100)).is_ok()
        });
        assert!(heard, "no event came");
        Listening { machine, library, events, watch }
    }

    fn address(&self, card: usize) -> PciBusId {
        self.library.addresses().unwrap()[card].clone().unwrap()
    }

    /// The next event that is not what [`Listening::start`] let happen.
    fn next(&self) -> Event {
        loop {
            match self.events.recv_timeout(PATIENCE).expect("no event came") {
                Event::Xid { xid: 31, .. } => {}
                event => return event,
            }
        }
    }
}

#[test]
fn an_xid_names_its_card() {
    let listening = Listening::start("a30-x2");
    listening.machine.let_happen("xid --card 1 48");
    let card = Some(listening.address(1));
    assert_eq!(listening.next(), Event::Xid { card, xid: 48, gpu_instance: None, compute_instance: None });
}

#[test]
fn a_lost_card_is_heard_of_and_the_others_still_are() {
    let listening = Listening::start("a30-x2");
    let other = listening.address(0);
    listening.machine.let_happen("lose --card 1");
    assert!(matches!(listening.next(), Event::Xid { xid: 79, .. } | Event::Interrupted { .. }));
    // It listens anew without the lost card; what happens meanwhile is missed.
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "no event of the other card came");
        listening.machine.let_happen("xid --card 0 62");
        let event = listening.events.recv_timeout(Duration::from_millis(200));
        if let Ok(Event::Xid { card, xid: 62, .. }) = event {
            assert_eq!(card, Some(other));
            return;
        }
    }
}

#[test]
fn a_card_that_hangs_while_it_is_registered_keeps_no_other_from_being_heard() {
    let machine = EmulatedMachine::new("a30-x2");
    machine.let_happen("fault --call nvmlDeviceRegisterEvents --card 0 --delay-ms 3600000");
    let library = Library::open_below(&machine.root()).unwrap();
    let (sender, events) = channel();
    let _watch = library.watch(Box::new(move |event| drop(sender.send(event)))).unwrap();
    let hears = |card: usize| {
        let address = library.addresses().unwrap()[card].clone().unwrap();
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            machine.let_happen(&format!("xid --card {card} 48"));
            let event = events.recv_timeout(Duration::from_millis(100));
            if matches!(event, Ok(Event::Xid { card, xid: 48, .. }) if card == Some(address)) {
                return true;
            }
        }
        false
    };
    assert!(hears(1));
    machine.let_happen("restore");
    assert!(hears(0), "it is heard when it has been registered at last");
}

/// An XID often says that its card hangs: to ask the card for its address would be to hang too.
#[test]
fn the_xid_of_a_card_that_hangs_names_it() {
    let listening = Listening::start("a30-x2");
    let card = Some(listening.address(1));
    listening.machine.let_happen("fault --call nvmlDeviceGetPciInfo --card 1 --delay-ms 3600000");
    listening.machine.let_happen("xid --card 1 48");
    let event = listening.next();
    listening.machine.let_happen("restore");
    assert_eq!(event, Event::Xid { card, xid: 48, gpu_instance: None, compute_instance: None });
}

#[test]
fn dropping_the_watch_ends_it() {
    let listening = Listening::start("t4");
    drop(listening.watch);
    // The thread drops its end of the channel when it ends.
    let deadline = Instant::now() + PATIENCE;
    while listening.events.recv_timeout(Duration::from_millis(100)) != Err(RecvTimeoutError::Disconnected) {
        assert!(Instant::now() < deadline, "the watch goes on");
    }
}
