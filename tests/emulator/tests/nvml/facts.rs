//! What the library says against what `gpu-emulator show` says.

use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t};
use tessera_emulator::hardware;

use crate::machine::{Machine, Nvml, SUCCESS};

/// `NVML_ERROR_NOT_SUPPORTED`
const NOT_SUPPORTED: u32 = 3;

fn number(nvml: &Nvml, read: impl FnOnce(&NvmlLib, *mut u32) -> u32) -> Result<u32, u32> {
    nvml.get(read)
}

/// `domain:bus:device.0` of a card.
fn address(nvml: &Nvml, device: nvmlDevice_t) -> String {
    // SAFETY: a plain struct of integers and characters.
    let mut pci: nvmlPciInfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the place is valid.
    assert_eq!(unsafe { nvml.functions.nvmlDeviceGetPciInfo_v3(device, &raw mut pci) }, SUCCESS);
    format!("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device)
}

/// `nvmlGpuTopologyLevel_t` by the names of `nvidia-smi topo`.
fn level(name: &str) -> u32 {
    match name {
        "INT" => 0,
        "PIX" => 10,
        "PXB" => 20,
        "PHB" => 30,
        "NODE" => 40,
        "SYS" => 50,
        _ => panic!("{name} is no level"),
    }
}

#[test]
fn every_machine_is_as_it_was_made() {
    for name in hardware::machine_names() {
        let machine = Machine::create(&["--hardware", name, "--seed", name]);
        let facts = machine.show();
        let cards = facts["machine"]["cards"].as_array().expect("cards");
        let nvml = machine.nvml();
        let devices: Vec<nvmlDevice_t> = (0..cards.len()).map(|index| nvml.card(index as u32)).collect();
        // SAFETY: the place is valid.
        let count = number(&nvml, |nvml, count| unsafe { nvml.nvmlDeviceGetCount_v2(count) });
        assert_eq!(count, Ok(cards.len() as u32), "{name}");
        for (index, card) in cards.iter().enumerate() {
            let device = devices[index];
            assert_eq!(
                nvml.uuid(index as u32).as_deref(),
                Ok(card["uuid"].as_str().expect("a UUID")),
                "{name}"
            );
            let product = nvml.text(|nvml, text, length| {
                // SAFETY: the buffer is as long as its length says.
                unsafe { nvml.nvmlDeviceGetName(device, text, length) }
            });
            assert_eq!(product.as_deref(), Ok(card["board"]["name"].as_str().expect("a name")), "{name}");
            // SAFETY: the place is valid.
            let minor = number(&nvml, |nvml, minor| unsafe { nvml.nvmlDeviceGetMinorNumber(device, minor) });
            assert_eq!(minor.map(u64::from).ok(), card["minor"].as_u64(), "{name}");
            assert_eq!(card["pci"], address(&nvml, device), "{name}");
            let mode = number(&nvml, |nvml, mode| {
                let mut pending = 0;
                // SAFETY: the places are valid.
                unsafe { nvml.nvmlDeviceGetMigMode(device, mode, &raw mut pending) }
            });
            let expected = if card["board"]["migCapable"] == true { Ok(0) } else { Err(NOT_SUPPORTED) };
            assert_eq!(mode, expected, "{name}");
            for (other, second) in devices.iter().enumerate() {
                let met = number(&nvml, |nvml, level| {
                    // SAFETY: the place is valid.
                    unsafe { nvml.nvmlDeviceGetTopologyCommonAncestor(device, *second, level) }
                });
                let expected = level(facts["machine"]["levels"][index][other].as_str().expect("a level"));
                assert_eq!(met, Ok(expected), "{name}: {index} and {other}");
            }
        }
    }
}

#[test]
fn memory_adds_up_in_both_versions() {
    let machine = Machine::create(&["--hardware", "hgx-h100-80gb"]);
    machine.emulator("process add", &["--card", "1", "--pid", "4711", "--memory-mib", "1000"]);
    let nvml = machine.nvml();
    let device = nvml.card(1);
    let mut old = nvmlMemory_t { total: 0, free: 0, used: 0 };
    let version = size_of::<nvmlMemory_v2_t>() as u32 | 2 << 24;
    let mut new = nvmlMemory_v2_t { version, total: 0, reserved: 0, free: 0, used: 0 };
    // SAFETY: the places are valid.
    unsafe {
        assert_eq!(nvml.functions.nvmlDeviceGetMemoryInfo(device, &raw mut old), SUCCESS);
        assert_eq!(nvml.functions.nvmlDeviceGetMemoryInfo_v2(device, &raw mut new), SUCCESS);
    }
    assert_eq!(new.total, 81559 << 20);
    assert_eq!(new.used, 1000 << 20);
    assert_eq!(new.total, new.reserved + new.free + new.used);
    assert_eq!((old.total, old.free, old.used), (new.total, new.free, new.used + new.reserved));
}

#[test]
fn a_minor_number_is_no_index() {
    let machine = Machine::create(&["--hardware", "hgx-a100-80gb"]);
    let nvml = machine.nvml();
    let device = nvml.card(0);
    // SAFETY: the place is valid.
    let minor = number(&nvml, |nvml, minor| unsafe { nvml.nvmlDeviceGetMinorNumber(device, minor) });
    assert_eq!(minor, Ok(2), "card 07:00.0 of a DGX A100 is /dev/nvidia2");
}

#[test]
fn links_lead_where_the_topology_says() {
    let machine = Machine::create(&["--hardware", "dgx-1v"]);
    let nvml = machine.nvml();
    let device = nvml.card(0);
    let mut peers = Vec::new();
    for link in 0..6 {
        // SAFETY: the places are valid; a plain struct of integers may be zero.
        unsafe {
            let kind =
                number(&nvml, |nvml, kind| nvml.nvmlDeviceGetNvLinkRemoteDeviceType(device, link, kind));
            assert_eq!(kind, Ok(0), "a card at the other end");
            let mut pci: nvmlPciInfo_t = std::mem::zeroed();
            assert_eq!(
                nvml.functions.nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &raw mut pci),
                SUCCESS
            );
            peers.push(pci.bus);
        }
    }
    assert_eq!(peers, [0x07, 0x0a, 0x0b, 0x0b, 0x85, 0x85], "NV1 NV1 NV2 NV2, as the matrix has it");
    // SAFETY: the place is valid.
    let seventh = number(&nvml, |nvml, state| unsafe { nvml.nvmlDeviceGetNvLinkState(device, 6, state) });
    assert_eq!(seventh, Err(NOT_SUPPORTED));
    machine.emulator("link", &["--card", "3", "--link", "2", "down"]);
    // Card 3's links: one to card 1, two to card 2, … in the order of its row NV2 NV1 NV2 X SYS SYS SYS NV1: link 2 leads to
    // card 1.
    let one = nvml.card(1);
    let up = |link| {
        // SAFETY: the place is valid.
        number(&nvml, |nvml, state| unsafe { nvml.nvmlDeviceGetNvLinkState(one, link, state) })
    };
    let states: Vec<_> = (0..6).map(up).collect();
    assert_eq!(
        states.iter().filter(|state| **state == Ok(0)).count(),
        1,
        "its other end is down too: {states:?}"
    );
}
