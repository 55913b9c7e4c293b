//! Derives the health of the published devices, as reported to the kubelet.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Instant, SystemTime},
};

use tessera_api::health::{HealthEffect, HealthPolicy};
use tessera_api::{DeviceName, PciBusId};
use tessera_inventory::{Machine, Pool, machine::Card};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::discovery::Looks;
use tessera_dra_kubelet::device_health::{DeviceHealth, HealthStatus};

/// The kubelet's limit for a message, in bytes.
const LONGEST_MESSAGE: usize = 1024;

/// Health of every published device; `None` until the hardware has been read.
pub type HealthSender = watch::Sender<Option<Arc<[DeviceHealth]>>>;

/// The health of every published device. `policy` defines the effects of faults.
pub fn report(
    pool_name: &str,
    pool: &Pool,
    machine: &Machine,
    policy: &HealthPolicy,
    looks: &Looks,
) -> Arc<[DeviceHealth]> {
    let times = times(looks);
    let cards: HashMap<_, _> = machine.cards.iter().map(|card| (card.pci, card)).collect();
    let pool_name: Arc<str> = pool_name.into();
    let mut messages: HashMap<String, Arc<str>> = HashMap::new();
    let health = |name: &Arc<str>| {
        let device = name.parse::<DeviceName>().ok();
        let card = device.as_ref().and_then(|device| Some((device, *cards.get(&device.card())?)));
        let (status, message) = status(card, policy);
        let message = messages.entry(message).or_insert_with_key(|message| message.as_str().into());
        DeviceHealth {
            pool_name: Arc::clone(&pool_name),
            device_name: Arc::clone(name),
            status,
            message: Arc::clone(message),
            checked_at: of_name(&times, name).unwrap_or_else(SystemTime::now),
        }
    };
    pool.device_names().map(health).collect()
}

/// Updates the time of the last look at each card in `health`, after each look. The time alone wakes no receiver and
/// is sent with the next repetition.
pub async fn keep_times(
    health: HealthSender,
    mut looks: watch::Receiver<Looks>,
    shutdown: CancellationToken,
) {
    while let Some(Ok(())) = shutdown.run_until_cancelled(looks.changed()).await {
        let times = times(&looks.borrow_and_update());
        health.send_if_modified(|devices| {
            let timed = |device: &DeviceHealth| {
                let checked_at = of_name(&times, &device.device_name).unwrap_or(device.checked_at);
                DeviceHealth { checked_at, ..device.clone() }
            };
            *devices = devices.as_ref().map(|devices| devices.iter().map(timed).collect());
            false
        });
    }
    shutdown.cancelled().await;
}

/// The time of day of the last look at each card.
fn times(looks: &Looks) -> HashMap<PciBusId, SystemTime> {
    let (now, clock) = (Instant::now(), SystemTime::now());
    let time = |at: &Instant| clock.checked_sub(now.saturating_duration_since(*at)).unwrap_or(clock);
    looks.cards.iter().map(|(card, at)| (*card, time(at))).collect()
}

fn of_name(times: &HashMap<PciBusId, SystemTime>, device: &str) -> Option<SystemTime> {
    times.get(&device.parse::<DeviceName>().ok()?.card()).copied()
}

/// A device is unhealthy with a fault that keeps new claims away, and, whatever the policy, with a card that does not answer.
/// Other faults whose effect is not `Off` are in the message only.
fn status(device: Option<(&DeviceName, &Card)>, policy: &HealthPolicy) -> (HealthStatus, String) {
    let Some((name, card)) = device else {
        return (HealthStatus::Unhealthy, "the card is not in this machine any more".to_owned());
    };
    let slices = card.slices_of(name);
    let mut status = if card.health.answers() { HealthStatus::Healthy } else { HealthStatus::Unhealthy };
    let mut messages = Vec::new();
    for fault in card.all_faults().filter(|fault| fault.concerns(slices)) {
        let effect = policy.effect(&fault);
        if effect.taint_effect().is_some() {
            status = HealthStatus::Unhealthy;
        }
        if effect != HealthEffect::Off || card.health.fault().as_ref() == Some(&fault) {
            messages.push(format!("the card {fault}"));
        }
    }
    let mut message = messages.join("; ");
    message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
    (status, message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tessera_api::health::{HealthClass, HealthFault};
    use tessera_inventory::{PoolOptions, machine::Health};

    use super::*;

    #[test]
    fn each_published_device_has_the_health_of_its_card() {
        let card = |address: &str, health| Card { health, ..Card::new(address.parse().unwrap()) };
        let mut machine = Machine {
            cards: vec![
                card("0000:18:00.0", Health::Healthy),
                card("0000:2a:00.0", Health::Healthy),
                card("0000:3a:00.0", Health::Lost),
                card("0000:5c:00.0", Health::NotAnswering),
                card("0000:5d:00.0", Health::Healthy),
            ],
            ..Machine::default()
        };
        machine.cards[0].faults = [HealthFault::new(HealthClass::Thermal)].into();
        machine.cards[1].faults = [HealthFault::xid(79, None)].into();
        let options = PoolOptions::new("gpu.tessera.dev");
        let pool = Pool::new(&machine, &options);
        machine.cards.pop();
        let ago = Duration::from_secs(600);
        let mut looks = Looks::default();
        looks.cards.insert("0000:5c:00.0".parse().unwrap(), Instant::now().checked_sub(ago).unwrap());
        let report = report("pool", &pool, &machine, &options.health, &looks);
        let status = |name: &str| {
            let device = report.iter().find(|device| &*device.device_name == name).unwrap();
            assert_eq!(&*device.pool_name, "pool");
            (device.status, &*device.message)
        };
        assert_eq!(report.len(), 5);
        let hangs = report.iter().find(|device| &*device.device_name == "gpu-5c-00").unwrap();
        assert_eq!(hangs.status, HealthStatus::Unhealthy);
        assert!(hangs.checked_at.elapsed().unwrap() >= ago, "since then nobody knows");
        assert_eq!(
            status("gpu-18-00"),
            (HealthStatus::Healthy, "the card is too hot: the hardware slows it down (thermal)")
        );
        assert_eq!(
            status("gpu-2a-00"),
            (HealthStatus::Unhealthy, "the card had an error (xid-79): reboot the node")
        );
        assert_eq!(status("gpu-3a-00").0, HealthStatus::Unhealthy);
        assert_eq!(
            status("gpu-5d-00"),
            (HealthStatus::Unhealthy, "the card is not in this machine any more")
        );
    }
}
