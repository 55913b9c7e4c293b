//! Devices that claims hold outlive their cards.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::{CounterSet, Device, ResourceSliceSpec};
use proptest::prelude::*;
use tessera_api::Offer;
use tessera_api::gpu_pool::Allocation;
use tessera_api::offer::{OfHeldCards, Partitioning};
use tessera_inventory::Warning;
use tessera_inventory::pool::{CardOffer, CardOffers, Contents, Held, PoolOptions, Slice};
use tessera_inventory::{Machine, Pool};

use crate::any_machine;
use crate::api_limits::violations;
use crate::mig_models;
use crate::pool::{hgx_h100, options, whole_cards, with_time_slices};

/// The pool as it would be read back from an API server.
fn published(pool: &Pool) -> Vec<ResourceSliceSpec> {
    let spec = |slice: &Slice| {
        let mut spec = ResourceSliceSpec::default();
        slice.contents.put_into(&mut spec);
        spec
    };
    pool.slices.iter().map(spec).collect()
}

fn holding(slices: &[ResourceSliceSpec], names: &[&str]) -> PoolOptions {
    PoolOptions { held: held(slices, |name| names.contains(&name)), ..whole_cards() }
}

fn held(slices: &[ResourceSliceSpec], is_held: impl Fn(&str) -> bool) -> Held {
    let slice = |spec| Slice { name_suffix: String::new(), contents: Contents::of(spec) };
    Held::new(&slices.iter().map(slice).collect::<Vec<_>>(), is_held)
}

/// The last pool of this process and the slices at the API server say the same.
#[test]
fn from_memory_as_from_the_api() {
    let pool = Pool::new(&hgx_h100(), &with_time_slices());
    let is_held = |name: &str| name != "gpu-11-00";
    let from_memory = Held::new(&pool.slices, is_held);
    assert_eq!(from_memory, held(&published(&pool), is_held));
    assert_eq!(from_memory.devices().count(), pool.devices().count() - 1);
}

fn device(pool: &Pool, name: &str) -> Device {
    pool.devices().find(|device| device.name == name).unwrap_or_else(|| panic!("{name} is not published"))
}

fn counter_set(pool: &Pool, name: &str) -> CounterSet {
    pool.counter_sets().find(|set| set.name == name).unwrap_or_else(|| panic!("{name} is not published"))
}

fn without_card(position: usize) -> Machine {
    let mut machine = hgx_h100();
    machine.cards.remove(position);
    machine
}

#[test]
fn a_held_device_whose_card_is_gone_stays_with_its_counters() {
    let with_time_slices = |held| PoolOptions { held, ..with_time_slices() };
    let holding = |slices: &[ResourceSliceSpec], names: &[&str]| {
        with_time_slices(held(slices, |name| names.contains(&name)))
    };
    let before = Pool::new(&hgx_h100(), &with_time_slices(Held::default()));
    let both = ["gpu-12-00", "gpu-13-00"];
    let options = holding(&published(&before), &both);
    let after = Pool::new(&without_card(2), &options);
    assert_eq!(violations(&after), [""; 0]);
    assert_eq!(after.devices().count(), 15);

    let held = device(&after, "gpu-12-00");
    let taints = held.taints.as_ref().unwrap();
    assert_eq!(
        (taints[0].key.as_str(), taints[0].effect.as_str()),
        ("gpu.tessera.dev/not-offered", "NoSchedule")
    );
    let untainted = Device { taints: None, ..held.clone() };
    assert_eq!(untainted, device(&before, "gpu-12-00"), "all else is unchanged");
    let set = "gpu-12-00-counter-set";
    assert_eq!(counter_set(&after, set), counter_set(&before, set));
    assert_eq!(device(&after, "gpu-13-00").taints, None, "held and offered");

    let again = Pool::new(&without_card(2), &holding(&published(&after), &both));
    assert_eq!(again.slices, after.slices, "publishing settles");
    let back = Pool::new(&hgx_h100(), &holding(&published(&after), &["gpu-12-00"]));
    assert_eq!(back.slices, before.slices, "the card came back");
    let released = Pool::new(&without_card(2), &holding(&published(&after), &[]));
    assert_eq!(released.devices().count(), 14);
    assert_eq!(released.counter_sets().count(), 7);
}

#[test]
fn a_held_device_keeps_its_gpu_pool_and_others_get_the_new_one() {
    let of_pool = |pool: Option<&str>, held: Held| {
        let mut options = PoolOptions { held, ..whole_cards() };
        for card in &hgx_h100().cards {
            let offer = options.offers.of(card.pci).offer.clone();
            options
                .offers
                .set(card.pci, CardOffer { pool: pool.map(str::to_owned), offer, ..CardOffer::default() });
        }
        Pool::new(&hgx_h100(), &options)
    };
    let pool_of = |pool: &Pool, name: &str| {
        let attributes = device(pool, name).attributes.unwrap();
        attributes.get("gpuPool").and_then(|attribute| attribute.string.clone())
    };
    let is_held = |name: &str| name == "gpu-12-00";
    let before = of_pool(Some("a"), Held::default());
    let changed = of_pool(Some("b"), held(&published(&before), is_held));
    assert_eq!(pool_of(&changed, "gpu-12-00").as_deref(), Some("a"));
    assert_eq!(pool_of(&changed, "gpu-13-00").as_deref(), Some("b"));
    assert_eq!(device(&changed, "gpu-12-00").taints, None);
    let none = of_pool(None, Held::default());
    let first = of_pool(Some("a"), held(&published(&none), is_held));
    assert_eq!((pool_of(&first, "gpu-12-00"), pool_of(&first, "gpu-13-00").as_deref()), (None, Some("a")));
}

#[test]
fn a_held_card_that_went_into_mig_mode_stays() {
    let before = Pool::new(&hgx_h100(), &whole_cards());
    let mut machine = hgx_h100();
    let mig = machine.cards[4].mig.as_mut().unwrap();
    mig.mode = true;
    mig.mode_switch_needs_reset = true;
    let after = Pool::new(&machine, &holding(&published(&before), &["gpu-14-00"]));
    assert_eq!(violations(&after), [""; 0]);
    assert!(device(&after, "gpu-14-00").taints.is_some());
}

/// A device of a later version of this driver, on a card that is still there.
fn partition(counter: &str) -> Device {
    let mut device = Pool::new(&hgx_h100(), &with_time_slices()).devices().next().unwrap();
    device.name = "gpu-10-00-mig-1g10gb-6".to_owned();
    let counters = &mut device.consumes_counters.as_mut().unwrap()[0].counters;
    let one = counters.pop_first().unwrap().1;
    *counters = [(counter.to_owned(), one)].into();
    device
}

#[test]
fn a_held_partition_keeps_drawing_on_its_card() {
    let mut slices = published(&Pool::new(&hgx_h100(), &with_time_slices()));
    slices.last_mut().unwrap().devices.as_mut().unwrap().push(partition("memory-slice-6"));
    let after = Pool::new(&hgx_h100(), &holding(&slices, &["gpu-10-00-mig-1g10gb-6"]));
    assert_eq!(violations(&after), [""; 0]);
    assert_eq!(after.warnings, []);
    assert_eq!(after.devices().count(), 9);
    assert!(device(&after, "gpu-10-00-mig-1g10gb-6").taints.is_some());
    let whole = device(&after, "gpu-10-00");
    assert_eq!(whole.taints, None);
    assert!(whole.consumes_counters.is_some(), "they keep new claims away");
    assert_eq!(device(&after, "gpu-11-00").consumes_counters, None, "nothing else is on it");
}

#[test]
fn counters_that_only_a_held_device_knows_stay() {
    let mut slices = published(&Pool::new(&hgx_h100(), &with_time_slices()));
    let set = &mut slices[0].shared_counters.as_mut().unwrap()[0];
    let one = set.counters.first_entry().unwrap().get().clone();
    set.counters.insert("extra".to_owned(), one);
    slices.last_mut().unwrap().devices.as_mut().unwrap().push(partition("extra"));
    let after = Pool::new(&hgx_h100(), &holding(&slices, &["gpu-10-00-mig-1g10gb-6"]));
    assert_eq!(violations(&after), [""; 0]);
    assert!(counter_set(&after, "gpu-10-00-counter-set").counters.contains_key("extra"));
    let whole = device(&after, "gpu-10-00").consumes_counters.unwrap();
    assert!(whole[0].counters.contains_key("extra"), "whole and held exclude each other");
}

#[test]
fn a_held_device_that_lost_its_counters_is_reported() {
    let mut slices = published(&Pool::new(&hgx_h100(), &with_time_slices()));
    slices.retain(|slice| slice.shared_counters.is_none());
    let after = Pool::new(&without_card(2), &holding(&slices, &["gpu-12-00"]));
    assert_eq!(violations(&after), [""; 0]);
    assert_eq!(after.warnings, [Warning::HeldWithoutCounters("gpu-12-00".to_owned())]);
    assert!(device(&after, "gpu-12-00").taints.is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// From any machine to any other, whatever is held.
    #[test]
    fn held_devices_survive_any_change(
        before in any_machine::machines(10),
        after in any_machine::machines(10),
        mask: u16,
    ) {
        let before = Pool::new(&before, &options());
        let names: Vec<&str> = before
            .device_names()
            .enumerate()
            .filter(|(position, _)| mask >> (position % 16) & 1 == 1)
            .map(|(_, name)| &**name)
            .collect();
        let options = PoolOptions { held: held(&published(&before), |name| names.contains(&name)), ..options() };
        let after = Pool::new(&after, &options);
        let not_offered = |device: &Device| {
            device.taints.iter().flatten().any(|taint| taint.key.ends_with("/not-offered"))
        };
        prop_assert_eq!(after.no_longer_offered.len(), after.devices().filter(not_offered).count());
        prop_assert_eq!(violations(&after), [""; 0]);
        for name in names {
            prop_assert!(after.device_names().any(|device| **device == *name));
        }
    }
}

#[test]
fn of_a_card_that_is_held_whole_one_partition_is_published_where_the_pool_says_so() {
    let machine = mig_models::named("H100-80GB").machine(2);
    let offer = |of_held_cards| Offer {
        partitioning: Partitioning { of_held_cards, ..Partitioning::default() },
        ..Offer::default()
    };
    let of_card = |pool: &Pool| {
        let names = pool.device_names().filter(|name| name.starts_with("gpu-11-00-mig"));
        names.cloned().collect::<Vec<_>>()
    };
    let next = |held, of_held_cards, allocation| {
        let mut offers = CardOffers::default();
        for card in &machine.cards {
            let offer = Arc::new(offer(of_held_cards));
            offers.set(card.pci, CardOffer { offer, allocation, ..CardOffer::default() });
        }
        Pool::new(&machine, &PoolOptions { held, offers, ..options() })
    };
    let free = next(Held::default(), OfHeldCards::First, Allocation::Native);
    let is_held = |name: &str| name == "gpu-11-00";
    let pool = |of_held_cards, allocation| next(Held::new(&free.slices, is_held), of_held_cards, allocation);
    let first = pool(OfHeldCards::First, Allocation::Native);
    assert_eq!(violations(&first), [""; 0]);
    assert_eq!(of_card(&first), of_card(&free)[..1]);
    assert_eq!(first.no_longer_offered, [""; 0]);
    // One write: the others are as before.
    let changed = first.slices.iter().zip(&free.slices).filter(|(now, before)| now != before);
    assert_eq!((first.slices.len(), changed.count()), (free.slices.len(), 1));
    assert_eq!(pool(OfHeldCards::All, Allocation::Native).slices, free.slices);
    assert_eq!(of_card(&pool(OfHeldCards::First, Allocation::Steered)), of_card(&free));
    // All come back with the end of the claim.
    let after = Held::new(&first.slices, |_| false);
    assert_eq!(next(after, OfHeldCards::First, Allocation::Native), free);
}
