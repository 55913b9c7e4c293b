//! The publication while the driver cannot be used after an earlier instance has published cards. Nothing else is known of the
//! cards, so the publication stays, with the taint for cards of a running instance whose driver goes away.

use std::collections::BTreeSet;

use tessera_api::health::{HealthClass, HealthFault, HealthPolicy};
use tessera_api::{DeviceName, PciBusId};
use tessera_inventory::{
    Machine, Pool,
    machine::{Card, Health},
    pool::Slice,
};
use tessera_kube_util::events::{NodeEvents, Severity};
use tokio::sync::watch;

use crate::driver::{self, Driver, LetGo};

/// Reason of the Event, as of claims that wait for the driver.
const NOT_READY: &str = "DriverNotReady";

/// Waits for an unusable driver, and reports it.
#[derive(Clone)]
pub struct DriverAway {
    /// The driver library.
    pub hardware: Driver,
    /// Reason for a missing driver library.
    pub reason: watch::Receiver<Option<String>>,
    /// Whether it is closed by request.
    pub let_go: LetGo,
    /// Sends the Event of the node.
    pub of_node: NodeEvents,
}

impl DriverAway {
    /// Returns when the driver cannot be used.
    pub async fn wait(&self) {
        driver::is_away(self.hardware.clone(), self.reason.clone(), self.let_go.clone()).await;
    }

    /// Reports in the log and an Event of the node that `pool` gets no new claims.
    pub async fn tell(&self, pool: &Pool) {
        let reason = self.reason.borrow().clone().unwrap_or_default();
        let devices = pool.device_names().count();
        let note = format!(
            "the {devices} devices of this node that are published get no new claims until the driver answers: {reason}"
        );
        tracing::warn!("{note}");
        self.of_node.send(Severity::Warning, "Discover", NOT_READY, &note).await;
    }
}

/// The publication `before`, with all cards lost.
pub fn lost(before: &[Slice], driver_name: &str, policy: &HealthPolicy) -> Pool {
    Pool::with_fault(before, driver_name, &HealthFault::new(HealthClass::Lost), policy)
}

/// The cards of `pool`, lost.
pub fn lost_machine(pool: &Pool) -> Machine {
    let card = |name: &std::sync::Arc<str>| Some(name.parse::<DeviceName>().ok()?.card());
    let cards: BTreeSet<PciBusId> = pool.device_names().filter_map(card).collect();
    let lost = |pci| Card { health: Health::Lost, ..Card::new(pci) };
    Machine { cards: cards.into_iter().map(lost).collect(), ..Machine::default() }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1::Device;
    use tessera_api::health::HealthEffect;
    use tessera_inventory::pool::Contents;

    use super::*;

    #[test]
    fn all_that_was_published_gets_the_taint_of_a_lost_card() {
        let device = |name: &str| Device { name: name.to_owned(), ..Device::default() };
        let devices = [device("gpu-18-00"), device("gpu-18-00-mig-1g10gb-0"), device("gpu-2a-00")];
        let slice = |name_suffix: &str, contents| Slice { name_suffix: name_suffix.to_owned(), contents };
        let before = [
            slice("0-counters-0000", Contents::of_shared_counters(&[])),
            slice("1-cards-0000", Contents::of_devices(&devices)),
        ];
        let taints = |pool: &Pool| {
            let taints = pool.devices().flat_map(|device| device.taints.unwrap_or_default());
            taints.map(|taint| (taint.key, taint.value.unwrap_or_default(), taint.effect)).collect::<Vec<_>>()
        };
        let pool = lost(&before, "d", &HealthPolicy::default());
        assert_eq!(
            pool.slices.iter().map(|slice| &*slice.name_suffix).collect::<Vec<_>>(),
            ["0-counters-0000", "1-cards-0000"]
        );
        let taint = ("d/unhealthy".to_owned(), "lost".to_owned(), "NoSchedule".to_owned());
        assert_eq!(taints(&pool), vec![taint; 3]);
        assert_eq!(lost_machine(&pool).cards.len(), 2);
        let off = HealthPolicy::default().with(HealthClass::Lost, HealthEffect::Off);
        assert_eq!(taints(&lost(&before, "d", &off)), []);
    }
}
