//! From what is published and what is known of the cards to what the kubelet is told of the devices' health.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use tessera_api::DeviceName;
use tessera_inventory::{Machine, PackedPool, machine::Health};

use crate::kubelet::device_health::{DeviceHealth, HealthStatus};

/// The health of every published device.
pub fn report(pool_name: &str, pool: &PackedPool, machine: &Machine, now: SystemTime) -> Arc<[DeviceHealth]> {
    let cards: HashMap<_, _> = machine.cards.iter().map(|card| (card.pci, &card.health)).collect();
    let pool_name: Arc<str> = pool_name.into();
    let mut messages: HashMap<String, Arc<str>> = HashMap::new();
    let health = |name: &Arc<str>| {
        let card = name.parse::<DeviceName>().ok().and_then(|name| cards.get(&name.card()).copied());
        let (status, message) = status(card);
        let message = messages.entry(message).or_insert_with_key(|message| message.as_str().into());
        DeviceHealth {
            pool_name: Arc::clone(&pool_name),
            device_name: Arc::clone(name),
            status,
            message: Arc::clone(message),
            checked_at: now,
        }
    };
    pool.device_names().map(health).collect()
}

fn status(card: Option<&Health>) -> (HealthStatus, String) {
    match card {
        Some(Health::Healthy) => (HealthStatus::Healthy, String::new()),
        Some(Health::Unhealthy { reason }) => {
            (HealthStatus::Unhealthy, format!("the driver reported {reason}"))
        }
        Some(Health::Lost) => (
            HealthStatus::Unhealthy,
            "the card does not answer: it fell off the bus or its driver is gone".to_owned(),
        ),
        None => (HealthStatus::Unhealthy, "the card is not in this machine any more".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use tessera_inventory::{PoolOptions, machine::Card};

    use super::*;

    #[test]
    fn each_published_device_has_the_health_of_its_card() {
        let card = |address: &str, health| Card { health, ..Card::new(address.parse().unwrap()) };
        let mut machine = Machine {
            cards: vec![
                card("0000:18:00.0", Health::Healthy),
                card("0000:2a:00.0", Health::Unhealthy { reason: "xid-79".to_owned() }),
                card("0000:3a:00.0", Health::Lost),
                card("0000:5d:00.0", Health::Healthy),
            ],
            ..Machine::default()
        };
        let options = PoolOptions::new("gpu.tessera.dev");
        let pool = PackedPool::new(&machine, &options);
        machine.cards.pop();
        let report = report("pool", &pool, &machine, SystemTime::UNIX_EPOCH);
        let status = |name: &str| {
            let device = report.iter().find(|device| &*device.device_name == name).unwrap();
            assert_eq!(&*device.pool_name, "pool");
            (device.status, &*device.message)
        };
        assert_eq!(report.len(), 4);
        assert_eq!(status("gpu-18-00"), (HealthStatus::Healthy, ""));
        assert_eq!(status("gpu-2a-00"), (HealthStatus::Unhealthy, "the driver reported xid-79"));
        assert_eq!(status("gpu-3a-00").0, HealthStatus::Unhealthy);
        assert_eq!(
            status("gpu-5d-00"),
            (HealthStatus::Unhealthy, "the card is not in this machine any more")
        );
    }
}
