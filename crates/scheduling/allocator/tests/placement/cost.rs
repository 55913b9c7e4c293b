//! A cost that says nothing and differs from set to set: of each device, and of each two.

use serde_json::Value;
use tessera_allocator::placement::Pick;

fn mixed(seed: u64, text: &str) -> u64 {
    let mut hash = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    hash ^ hash >> 29
}

fn of_devices(seed: u64, devices: &[String]) -> u64 {
    let mut cost = 0;
    for (place, one) in devices.iter().enumerate() {
        cost += mixed(seed, one) % 7;
        for other in &devices[place + 1..] {
            cost += mixed(seed + 1, one.min(other)).wrapping_add(mixed(seed + 1, one.max(other)) << 1) % 5;
        }
    }
    cost
}

/// The cost with this seed.
pub fn of(seed: u64) -> impl FnMut(&[Pick<'_>]) -> u64 {
    move |picks| {
        let name = |pick: &Pick<'_>| {
            format!("{}/{}/{}", pick.device.driver_name(), pick.device.pool(), pick.device.name())
        };
        of_devices(seed, &picks.iter().map(name).collect::<Vec<_>>())
    }
}

/// The cost of allocations.
pub fn of_answer(seed: u64, allocations: &Value) -> u64 {
    let of = super::cases::results(allocations);
    let devices: Vec<String> = of.iter().flatten().map(|(_, device)| device.clone()).collect();
    of_devices(seed, &devices)
}
