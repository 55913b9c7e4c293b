//! The taint of cards that the controller allocates.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::Device;
use proptest::prelude::*;
use tessera_api::gpu_pool::Allocation;
use tessera_api::offer::{Mps, TimeSliceInterval, TimeSlicing};
use tessera_api::{DeviceName, PciBusId, managed, taint};
use tessera_inventory::machine::Health;
use tessera_inventory::pool::{CardOffer, Held, PoolOptions};
use tessera_inventory::{Machine, Pool};

use crate::any_machine;
use crate::api_limits::violations;
use crate::pool::{hgx_h100, options, whole_cards};

/// Everything that can be offered of a card, with the cards of `managed` allocated by the controller.
fn offering(machine: &Machine, managed: &BTreeSet<PciBusId>, held: Held) -> PoolOptions {
    let mut options = PoolOptions { held, ..options() };
    let partitions = machine.cards.iter().flat_map(|card| &card.mig).flat_map(|mig| &mig.profiles);
    let partitions = partitions.map(|profile| profile.name.clone()).collect();
    let sharing = &mut options.offers.others_mut().sharing;
    sharing.mps = Some(Mps { partitions, ..Mps::default() });
    sharing.time_slicing = Some(TimeSlicing { replicas: 7, interval: TimeSliceInterval::Default });
    allocate(&mut options, managed);
    options
}

fn allocate(options: &mut PoolOptions, managed: &BTreeSet<PciBusId>) {
    for card in managed {
        let offer = CardOffer { allocation: Allocation::Managed, ..options.offers.of(*card).clone() };
        options.offers.set(*card, offer);
    }
}

fn keys(device: &Device) -> Vec<&str> {
    device.taints.iter().flatten().map(|taint| taint.key.as_str()).collect()
}

fn card(device: &Device) -> PciBusId {
    device.name.parse::<DeviceName>().unwrap().card()
}

#[test]
fn every_device_of_a_managed_card_is_tainted_and_no_other() {
    let machine = hgx_h100();
    let managed = BTreeSet::from([machine.cards[2].pci]);
    let pool = Pool::new(&machine, &offering(&machine, &managed, Held::default()));
    let tainted: BTreeSet<String> = pool
        .devices()
        .filter(|device| keys(device) == [managed::TAINT_KEY])
        .map(|device| {
            let taint = &device.taints.as_ref().unwrap()[0];
            assert_eq!((taint.effect.as_str(), &taint.value), (taint::EFFECT_NO_SCHEDULE, &None));
            assert_eq!(taint.time_added, None, "the API server's to set");
            device.attributes.as_ref().unwrap()["type"].string.clone().unwrap()
        })
        .collect();
    assert_eq!(tainted, BTreeSet::from(["gpu", "mig", "mps", "timeslice"].map(str::to_owned)));
    assert!(pool.devices().all(|device| (card(&device) == machine.cards[2].pci) == device.taints.is_some()));
    assert_eq!(violations(&pool), [""; 0]);
}

#[test]
fn a_card_that_does_not_work_keeps_its_own_taint() {
    let mut machine = hgx_h100();
    machine.cards[0].health = Health::Lost;
    let mut options = whole_cards();
    allocate(&mut options, &BTreeSet::from([machine.cards[0].pci]));
    let pool = Pool::new(&machine, &options);
    let lost = pool.devices().find(|device| card(device) == machine.cards[0].pci).unwrap();
    assert_eq!(keys(&lost), ["gpu.tessera.dev/unhealthy", managed::TAINT_KEY]);
}

#[test]
fn a_held_device_that_is_not_offered_follows_its_card() {
    let machine = hgx_h100();
    let held_name = "gpu-12-00";
    let next = |before: &Pool, managed: bool| {
        let held = Held::new(&before.slices, |name| name == held_name);
        let mut options = PoolOptions { held, ..whole_cards() };
        options.offers.others_mut().whole_cards = false;
        if managed {
            allocate(&mut options, &BTreeSet::from([machine.cards[2].pci]));
        }
        Pool::new(&machine, &options)
    };
    let taints = |pool: &Pool| {
        let held: Vec<Device> = pool.devices().filter(|device| device.name == held_name).collect();
        assert_eq!(held.len(), 1);
        keys(&held[0]).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let offered = Pool::new(&machine, &whole_cards());
    assert_eq!(taints(&offered), [""; 0]);
    let native = next(&offered, false);
    assert_eq!(taints(&native), ["gpu.tessera.dev/not-offered"]);
    let managed = next(&native, true);
    assert_eq!(taints(&managed), ["gpu.tessera.dev/not-offered", managed::TAINT_KEY]);
    assert_eq!(next(&managed, true).slices, managed.slices, "publishing settles");
    assert_eq!(next(&managed, false).slices, native.slices, "and goes back");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever was published and is held: who allocates a card now says which of its devices are tainted.
    #[test]
    fn the_taint_is_on_all_devices_of_managed_cards(
        before in any_machine::machines(8),
        after in any_machine::machines(8),
        masks: (u8, u8, u16),
    ) {
        let managed = |machine: &Machine, mask: u8| -> BTreeSet<PciBusId> {
            let cards = machine.cards.iter().enumerate();
            cards.filter(|(position, _)| mask >> (position % 8) & 1 == 1).map(|(_, card)| card.pci).collect()
        };
        let before = Pool::new(&before, &offering(&before, &managed(&before, masks.0), Held::default()));
        let names: BTreeSet<&str> = before
            .device_names()
            .enumerate()
            .filter(|(position, _)| masks.2 >> (position % 16) & 1 == 1)
            .map(|(_, name)| &**name)
            .collect();
        let held = Held::new(&before.slices, |name| names.contains(name));
        let now = managed(&after, masks.1);
        let pool = Pool::new(&after, &offering(&after, &now, held));
        prop_assert_eq!(violations(&pool), [""; 0]);
        for device in pool.devices() {
            let count = keys(&device).iter().filter(|key| **key == managed::TAINT_KEY).count();
            prop_assert_eq!(count, usize::from(now.contains(&card(&device))), "{}", device.name);
        }
    }
}
