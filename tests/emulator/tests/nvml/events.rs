//! Events, and who gets them.

use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{nvmlEventData_t, nvmlEventSet_t};

use crate::machine::{Machine, Nvml, SUCCESS};

const XID: u64 = 8;
const TIMEOUT: u32 = 10;
const GPU_IS_LOST: u32 = 15;

struct Set<'nvml> {
    nvml: &'nvml Nvml,
    handle: nvmlEventSet_t,
}

// SAFETY: a handle may be used from every thread.
unsafe impl Send for Set<'_> {}

impl<'nvml> Set<'nvml> {
    fn new(nvml: &'nvml Nvml, cards: &[u32]) -> Self {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place is valid.
        assert_eq!(unsafe { nvml.functions.nvmlEventSetCreate(&raw mut handle) }, SUCCESS);
        for card in cards {
            // SAFETY: handles of this library.
            let code = unsafe { nvml.functions.nvmlDeviceRegisterEvents(nvml.card(*card), XID, handle) };
            assert_eq!(code, SUCCESS);
        }
        Set { nvml, handle }
    }

    /// Card and XID of the next event.
    fn wait(&self, milliseconds: u32) -> Result<(usize, u64), u32> {
        // SAFETY: a plain struct of integers and a handle.
        let mut data: nvmlEventData_t = unsafe { std::mem::zeroed() };
        // SAFETY: the place is valid.
        match unsafe { self.nvml.functions.nvmlEventSetWait_v2(self.handle, &raw mut data, milliseconds) } {
            SUCCESS => Ok((data.device.addr(), data.eventData)),
            code => Err(code),
        }
    }
}

#[test]
fn everybody_who_waits_gets_an_xid_once() {
    let machine = Machine::create(&["--hardware", "hgx-h100-80gb"]);
    let nvml = machine.nvml();
    machine.emulator("xid", &["--card", "2", "48"]);
    let sets = [Set::new(&nvml, &[1, 2]), Set::new(&nvml, &[2]), Set::new(&nvml, &[1])];
    assert_eq!(sets[0].wait(0), Err(TIMEOUT), "what was before does not count");
    let second = nvml.card(2).addr();
    std::thread::scope(|scope| {
        let [both, only, other] = sets;
        let waiting = [both, only].map(|set| {
            scope.spawn(move || {
                let started = Instant::now();
                let event = set.wait(20_000);
                (event, started.elapsed(), set.wait(0))
            })
        });
        std::thread::sleep(Duration::from_millis(50));
        machine.emulator("xid", &["--card", "2", "79"]);
        for thread in waiting {
            let (event, took, after) = thread.join().expect("it waits");
            assert_eq!(event, Ok((second, 79)));
            assert!(took < Duration::from_secs(10), "woken, not timed out: {took:?}");
            assert_eq!(after, Err(TIMEOUT), "once");
        }
        assert_eq!(other.wait(0), Err(TIMEOUT), "another card's events are not asked for");
    });
}

#[test]
fn a_wait_ends_in_time() {
    let machine = Machine::create(&["--hardware", "t4"]);
    let nvml = machine.nvml();
    let set = Set::new(&nvml, &[0]);
    let started = Instant::now();
    assert_eq!(set.wait(300), Err(TIMEOUT));
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_lost_card_first_says_why() {
    let machine = Machine::create(&["--hardware", "t4"]);
    let nvml = machine.nvml();
    let set = Set::new(&nvml, &[0]);
    let card = nvml.card(0).addr();
    machine.emulator("lose", &["--card", "0"]);
    assert_eq!(set.wait(10_000), Ok((card, 79)));
    assert_eq!(set.wait(10_000), Err(GPU_IS_LOST));
    machine.emulator("restore", &[]);
    assert_eq!(set.wait(0), Err(TIMEOUT));
}

#[test]
fn a_freed_set_is_none() {
    let machine = Machine::create(&["--hardware", "t4"]);
    let nvml = machine.nvml();
    let set = Set::new(&nvml, &[0]);
    // SAFETY: handles of this library, freed ones among them, which is what is tested.
    unsafe {
        assert_eq!(nvml.functions.nvmlEventSetFree(set.handle), SUCCESS);
        assert_eq!(nvml.functions.nvmlEventSetFree(set.handle), 2);
        assert_eq!(nvml.functions.nvmlDeviceRegisterEvents(nvml.card(0), XID, set.handle), 2);
    }
    assert_eq!(set.wait(0), Err(2));
}
