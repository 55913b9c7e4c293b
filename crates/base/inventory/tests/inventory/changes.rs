//! From any offer to any other, while claims hold devices.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use proptest::prelude::*;
use tessera_api::offer::{
    ConsumableShares, ConsumableSharesMode, Mps, Partitioning, PartitioningMode, TimeSliceInterval,
    TimeSlicing,
};
use tessera_api::{DeviceName, Offer, PciBusId, Quantity};
use tessera_inventory::pool::{Contents, Held, PoolOptions};
use tessera_inventory::{Machine, Pool};

use crate::api_limits::violations;
use crate::mig_models;
use crate::pool::{hgx_h100, options};

/// A machine, its published devices, and the devices held by claims.
struct Node {
    machine: Machine,
    published: Pool,
    held: BTreeSet<String>,
}

impl Node {
    fn new(machine: Machine) -> Self {
        Self { machine, published: Pool::default(), held: BTreeSet::new() }
    }

    /// What would be published now of this offer.
    fn next(&self, offer: &Offer) -> Pool {
        let held = Held::new(&self.published.slices, |name| self.held.contains(name));
        Pool::new(&self.machine, &PoolOptions { held, offers: offer.clone().into(), ..options() })
    }

    /// The devices that kube-scheduler would allocate to a claim: without a taint, free or shared, and with counters left.
    fn allocatable(&self) -> Vec<String> {
        let pool = &self.published;
        let drawn = |device: &Device| -> Vec<((String, String), Quantity)> {
            let consumptions = device.consumes_counters.iter().flatten();
            let counters = consumptions.flat_map(|consumption| {
                let set = &consumption.counter_set;
                consumption
                    .counters
                    .iter()
                    .map(|(name, counter)| ((set.clone(), name.clone()), value(&counter.value.0)))
            });
            counters.collect()
        };
        let mut left: BTreeMap<(String, String), i128> = BTreeMap::new();
        for set in pool.counter_sets() {
            for (name, counter) in &set.counters {
                left.insert((set.name.clone(), name.clone()), value(&counter.value.0).nanos());
            }
        }
        for (counter, quantity) in
            pool.devices().filter(|device| self.held.contains(&device.name)).flat_map(|device| drawn(&device))
        {
            *left.get_mut(&counter).unwrap() -= quantity.nanos();
        }
        let can_be_had = |device: &Device| match self.held.contains(&device.name) {
            // What is drawn on is drawn by the first claim.
            true => device.allow_multiple_allocations == Some(true),
            false => drawn(device).iter().all(|(counter, quantity)| left[counter] >= quantity.nanos()),
        };
        let free = pool.devices().filter(|device| device.taints.is_none()).filter(can_be_had);
        free.map(|device| device.name).collect()
    }

    /// The published device of this name, without its taints.
    fn device(&self, name: &str) -> Device {
        let device = self.published.devices().find(|device| device.name == name).unwrap();
        Device { taints: None, ..device }
    }

    fn card(&self, name: &str) -> PciBusId {
        name.parse::<DeviceName>().unwrap().card()
    }

    /// Whether the hardware cannot give both out at once.
    fn collide(&self, one: &str, other: &str) -> bool {
        let places = [one, other].map(|name| {
            let name: DeviceName = name.parse().unwrap();
            let card = self.machine.cards.iter().find(|card| card.pci == name.card()).unwrap();
            (card.pci, card.slices_of(&name))
        });
        let [(card, one), (other_card, other)] = places;
        card == other_card && one.zip(other).is_none_or(|(one, other)| one.overlaps(other))
    }
}

fn value(text: &str) -> Quantity {
    text.parse().unwrap()
}

fn names(pool: &Pool, card: PciBusId) -> BTreeSet<&str> {
    let is_of_card = |name: &&str| name.parse::<DeviceName>().unwrap().card() == card;
    pool.device_names().map(|name| &**name).filter(is_of_card).collect()
}

fn only_whole_cards() -> Offer {
    let partitioning = Partitioning { mode: PartitioningMode::None, ..Partitioning::default() };
    Offer { partitioning, ..Offer::default() }
}

fn counters_of(pool: &Pool, name: &str) -> Option<String> {
    let device = pool.devices().find(|device| device.name == name).unwrap();
    Some(device.consumes_counters?.swap_remove(0).counter_set)
}

#[test]
fn the_rest_of_a_card_comes_when_the_claim_ends_that_has_it_whole() {
    let mut node = Node::new(mig_models::named("H100-80GB").machine(2));
    node.published = node.next(&only_whole_cards());
    assert_eq!(node.published.slices.len(), 1, "no counters");
    node.held.insert("gpu-11-00".to_owned());
    node.published = node.next(&Offer::default());
    let [free, held] = [0, 1].map(|position| names(&node.published, node.machine.cards[position].pci).len());
    assert_eq!((free, held), (19, 1));
    assert_eq!(node.published.no_longer_offered, ["gpu-11-00"], "what is waited for");
    let pool = &node.published;
    assert_eq!(counters_of(pool, "gpu-10-00").as_deref(), Some("gpu-10-00-counter-set"));
    assert_eq!(counters_of(pool, "gpu-11-00"), None);
    assert_eq!(pool.counter_sets().count(), 1);
    assert!(
        node.allocatable().iter().all(|name| name.starts_with("gpu-10-00")),
        "the taint keeps new claims away"
    );

    assert_eq!(node.next(&only_whole_cards()).no_longer_offered, [""; 0], "it was changed back");
    node.held.clear();
    assert_eq!(
        node.next(&Offer::default()).slices,
        Node::new(node.machine.clone()).next(&Offer::default()).slices
    );
}

#[test]
fn a_card_keeps_its_counters_while_a_part_of_it_is_held() {
    let mut node = Node::new(mig_models::named("H100-80GB").machine(1));
    node.published = node.next(&Offer::default());
    node.held.insert("gpu-10-00-mig-1g10gb-6".to_owned());
    node.published = node.next(&only_whole_cards());
    assert_eq!(counters_of(&node.published, "gpu-10-00").as_deref(), Some("gpu-10-00-counter-set"));
    assert_eq!(node.allocatable(), [""; 0]);
    node.held.clear();
    node.published = node.next(&only_whole_cards());
    assert_eq!(node.published.slices.len(), 1);
    assert_eq!(node.allocatable(), ["gpu-10-00"]);

    // So does one that is held whole, for that is how it was given out.
    node.published = node.next(&Offer::default());
    let before = node.device("gpu-10-00");
    node.held.insert("gpu-10-00".to_owned());
    node.published = node.next(&only_whole_cards());
    assert_eq!((node.device("gpu-10-00"), node.published.slices.len()), (before, 2));
    assert_eq!(node.published.no_longer_offered, [""; 0]);
    node.held.clear();
    node.published = node.next(&only_whole_cards());
    assert_eq!((counters_of(&node.published, "gpu-10-00"), node.published.slices.len()), (None, 1));
}

/// The last release published engines of partitions, and who knows what the next one adds.
#[test]
fn what_a_claim_has_stays_as_the_last_release_published_it() {
    let mut node = Node::new(mig_models::named("H100-80GB").machine(1));
    let mut published = node.next(&Offer::default());
    for slice in &mut published.slices {
        let mut devices = slice.contents.devices();
        if devices.is_empty() {
            continue;
        }
        for device in &mut devices {
            let one = DeviceCapacity { value: QuantityText("1".to_owned()), ..DeviceCapacity::default() };
            device.capacity.get_or_insert_default().insert("engines".to_owned(), one);
            let one = DeviceAttribute { int: Some(1), ..DeviceAttribute::default() };
            device.attributes.get_or_insert_default().insert("engineCount".to_owned(), one);
        }
        slice.contents = Contents::of_devices(&devices);
    }
    for held in ["gpu-10-00-mig-1g10gb-6", "gpu-10-00"] {
        node.published = published.clone();
        node.held = BTreeSet::from([held.to_owned()]);
        let before = node.device(held);
        node.published = node.next(&Offer::default());
        assert_eq!(node.device(held), before);
        let pool = &node.published;
        let is_old = |device: &Device| device.capacity.as_ref().unwrap().contains_key("engines");
        assert_eq!(pool.devices().filter(is_old).count(), 1, "the others are this release's");
        node.held.clear();
        assert_eq!(
            node.next(&Offer::default()).slices,
            Node::new(node.machine.clone()).next(&Offer::default()).slices
        );
    }
}

/// kube-scheduler counts claims on a device for one claim in another place than those on a device for many.
#[test]
fn a_device_that_is_held_does_not_change_from_one_claim_to_many() {
    let mut many = only_whole_cards();
    many.sharing.consumable_shares =
        Some(ConsumableShares { mode: ConsumableSharesMode::Unlimited, shares: None });
    let one = only_whole_cards();
    for (before, after) in [(&one, &many), (&many, &one)] {
        let mut node = Node::new(mig_models::named("H100-80GB").machine(1));
        node.published = node.next(before);
        let given_out = node.device("gpu-10-00");
        node.held.insert("gpu-10-00".to_owned());
        node.published = node.next(after);
        assert_eq!(node.allocatable(), [""; 0]);
        assert_eq!(node.device("gpu-10-00"), given_out);
        assert_eq!(node.published.no_longer_offered, ["gpu-10-00"]);
        node.held.clear();
        node.published = node.next(after);
        assert_eq!(node.allocatable(), ["gpu-10-00"]);
    }
}

/// The plugin learns of a claim when the kubelet prepares it: until then kube-scheduler alone knows who has the card.
#[test]
fn a_card_that_was_given_out_a_moment_ago_draws_on_its_counters() {
    let mut node = Node::new(mig_models::named("H100-80GB").machine(1));
    node.published = node.next(&only_whole_cards());
    node.published = node.next(&Offer::default());
    assert_eq!(counters_of(&node.published, "gpu-10-00").as_deref(), Some("gpu-10-00-counter-set"));
    node.held.insert("gpu-10-00".to_owned());
    assert_eq!(node.allocatable(), [""; 0]);
}

fn offers() -> impl Strategy<Value = Offer> {
    let profiles = prop_oneof![Just(None), Just(Some(vec!["1g.10gb".to_owned(), "4g.40gb".to_owned()]))];
    let partitioning = prop_oneof![
        1 => Just(only_whole_cards().partitioning),
        1 => profiles.prop_map(|profiles| Partitioning { profiles, ..Partitioning::default() }),
    ];
    let of_partitions = || vec!["1g.10gb".to_owned(), "3g.40gb".to_owned()];
    let mps = prop_oneof![
        4 => Just(None),
        1 => Just(Some(Mps::default())),
        1 => Just(Some(Mps { cards: false, partitions: of_partitions(), ..Mps::default() })),
        1 => Just(Some(Mps { partitions: of_partitions(), ..Mps::default() })),
    ];
    let slicing = TimeSlicing { replicas: 4, interval: TimeSliceInterval::Default };
    let slicing = prop_oneof![3 => Just(None), 1 => Just(Some(slicing))];
    let at_once = ConsumableShares { mode: ConsumableSharesMode::Unlimited, shares: None };
    let at_once = prop_oneof![5 => Just(None), 1 => Just(Some(at_once))];
    (prop::bool::weighted(0.8), partitioning, mps, slicing, at_once).prop_map(
        |(whole_cards, partitioning, mps, time_slicing, consumable_shares)| {
            let mut offer = Offer { whole_cards, partitioning, ..Offer::default() };
            offer.sharing.mps = mps;
            offer.sharing.time_slicing = time_slicing;
            offer.sharing.consumable_shares = consumable_shares;
            offer
        },
    )
}

fn machines() -> impl Strategy<Value = Machine> {
    let with_mig = ["H100-80GB", "A100-80GB"].map(mig_models::named);
    let machines = with_mig.iter().flat_map(|model| [model.machine(2), model.machine_in_mig_mode(2)]);
    let mut without_mig = hgx_h100();
    without_mig.cards.truncate(2);
    for card in &mut without_mig.cards {
        card.mig = None;
    }
    prop::sample::select(machines.chain([without_mig]).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Claims that kube-scheduler allocates, and pools that change while they run.
    #[test]
    fn what_is_held_never_collides_and_what_is_offered_comes(
        machine in machines(),
        steps in prop::collection::vec((offers(), prop::collection::vec(any::<prop::sample::Index>(), 0..4), any::<u16>()), 1..6),
    ) {
        let mut node = Node::new(machine);
        let mut given_out: BTreeMap<String, Device> = BTreeMap::new();
        for (offer, wishes, ends) in steps {
            let published = node.next(&offer);
            prop_assert_eq!(violations(&published), [""; 0]);
            for name in &node.held {
                prop_assert!(published.device_names().any(|device| **device == **name), "{} is gone", name);
            }
            node.published = published;
            prop_assert_eq!(&node.next(&offer).slices, &node.published.slices, "publishing settles");
            for (name, given_out) in given_out.iter().filter(|(name, _)| node.held.contains(*name)) {
                let (device, is_for_many) = (node.device(name), given_out.allow_multiple_allocations);
                prop_assert_eq!(device.allow_multiple_allocations, is_for_many);
                if is_for_many.is_none() {
                    prop_assert_eq!(&device, given_out);
                }
            }

            let anew = Node::new(node.machine.clone()).next(&offer);
            for card in &node.machine.cards {
                let (wanted, there) = (names(&anew, card.pci), names(&node.published, card.pci));
                let waits = node.published.no_longer_offered.iter().any(|name| node.card(name) == card.pci);
                prop_assert!(wanted == there || waits, "{:?} is not {:?}, and waits for nobody", there, wanted);
                let whole = DeviceName::Card(card.pci).to_string();
                let draws = counters_of_card(&node.published, card.pci) && !node.held.contains(&whole);
                prop_assert!(!(there.len() == 1 && wanted == BTreeSet::from([&*whole]) && draws), "counters for nothing");
            }

            for wish in wishes {
                let allocatable = node.allocatable();
                if !allocatable.is_empty() {
                    let name = wish.get(&allocatable);
                    node.held.insert(name.clone());
                    given_out.insert(name.clone(), node.device(name));
                }
            }
            let held: Vec<&String> = node.held.iter().collect();
            for (position, one) in held.iter().enumerate() {
                for other in &held[..position] {
                    prop_assert!(!node.collide(one, other), "{} and {}", one, other);
                }
            }
            let mut position = 0;
            node.held.retain(|_| {
                position += 1;
                ends >> (position % 16) & 1 == 0
            });
        }
        let last = Offer::default();
        node.held.clear();
        prop_assert_eq!(node.next(&last).slices, Node::new(node.machine.clone()).next(&last).slices);
    }
}

fn counters_of_card(pool: &Pool, card: PciBusId) -> bool {
    let of_card = pool.devices().filter(|device| device.name.parse::<DeviceName>().unwrap().card() == card);
    let draws = of_card.map(|device| device.consumes_counters.is_some()).collect::<Vec<_>>();
    draws.contains(&true)
}
