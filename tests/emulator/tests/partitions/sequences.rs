//! Whatever sequence of orders: no state that the tables forbid.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tessera_emulator::failure::Failure;
use tessera_emulator::hardware::{MigModel, mig_model, mig_model_names};
use tessera_emulator::mig::{compute, gpu, mode};
use tessera_emulator::state::Mig;

#[derive(Clone, Debug)]
enum Order {
    /// Profile by position, and a placement or none.
    Create(usize, Option<(u32, u32)>),
    Destroy(usize),
    /// GPU instance by position, profile, placement.
    CreateCompute(usize, u32, Option<(u32, u32)>),
    DestroyCompute(usize),
    Mode(bool, bool),
    Reset,
    Reboot,
}

fn order() -> impl Strategy<Value = Order> {
    let placement = || prop::option::of((0..13_u32, 0..13_u32));
    prop_oneof![
        6 => (0..12_usize, placement()).prop_map(|(profile, at)| Order::Create(profile, at)),
        6 => (0..12_usize, 0..13_u32).prop_map(|(profile, start)| Order::Create(profile, Some((start, u32::MAX)))),
        3 => (0..8_usize).prop_map(Order::Destroy),
        4 => (0..8_usize, 0..9_u32, placement()).prop_map(|(gpu, profile, at)| Order::CreateCompute(gpu, profile, at)),
        4 => (0..8_usize, 0..9_u32).prop_map(|(gpu, profile)| Order::CreateCompute(gpu, profile, None)),
        3 => (0..16_usize).prop_map(Order::DestroyCompute),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(on, used)| Order::Mode(on, used)),
        1 => Just(Order::Reset),
        1 => Just(Order::Reboot),
    ]
}

fn obey(model: &MigModel, mig: &mut Mig, order: &Order, swapped: bool) -> Result<(), Failure> {
    let nothing = u64::MAX;
    match order {
        Order::Create(profile, placement) => {
            let profile = &model.profiles[profile % model.profiles.len()];
            // The right size, where the order leaves it open.
            let placement = placement
                .map(|(start, size)| (start, if size == u32::MAX { profile.memory_slices } else { size }));
            let expected = gpu::remaining(model, mig, profile);
            let made = gpu::create(model, mig, profile.id, placement, swapped);
            if placement.is_none() && mig.enabled {
                assert_eq!(made.is_ok(), expected > 0, "{}: {expected} could be made", profile.name);
            }
            if made.is_ok() {
                assert!(gpu::remaining(model, mig, profile) < expected);
            }
            made.map(|_| ())
        }
        Order::Destroy(position) => {
            let serial = mig.instances.get(*position).map_or(nothing, |instance| instance.serial);
            let holds = mig.instances.get(*position).is_some_and(|gpu| !gpu.compute_instances.is_empty());
            let outcome = gpu::destroy(mig, serial, |_| false);
            assert_eq!(outcome == Err(Failure::IN_USE), holds);
            outcome
        }
        Order::CreateCompute(position, profile, placement) => {
            let serial = mig.instances.get(*position).map_or(nothing, |instance| instance.serial);
            compute::create(model, mig, serial, *profile, *placement).map(|_| ())
        }
        Order::DestroyCompute(position) => {
            let serial = mig.devices().nth(*position).map_or(nothing, |(_, compute)| compute.serial);
            compute::destroy(mig, serial, |_, _| false)
        }
        Order::Mode(on, used) => mode::set(model, mig, *on, *used),
        Order::Reset => {
            mode::reset(mig);
            Ok(())
        }
        Order::Reboot => {
            mode::reboot(model, mig);
            Ok(())
        }
    }
}

/// What the tables allow, without the code that decides it.
fn check(model: &MigModel, mig: &Mig, swapped: bool) {
    assert!(mig.enabled || mig.instances.is_empty(), "instances without the mode");
    let mut slices = BTreeSet::new();
    let mut ids = BTreeSet::new();
    let mut engines = [0_u32; 5];
    let whole = model.profiles.iter().map(|profile| profile.engines());
    for instance in &mig.instances {
        let profile = model.profile(instance.profile).expect("a profile of the model");
        assert!(profile.starts.contains(&instance.start) && instance.size == profile.memory_slices);
        for slice in instance.start..instance.start + instance.size {
            assert!(slices.insert(slice), "slice {slice} twice");
        }
        assert!(ids.insert(instance.id) && instance.id < 15, "id {}", instance.id);
        assert_eq!(instance.id, gpu::id(model, instance.start, instance.size, swapped));
        for (sum, more) in engines.iter_mut().zip(profile.engines()) {
            *sum += more.unwrap_or(0);
        }
        let of_profile = mig.instances.iter().filter(|other| other.profile == instance.profile).count();
        assert!(of_profile as u32 <= profile.max_instances, "{}", profile.name);
        let offered = compute::profiles(model, profile);
        let mut slices = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for compute in &instance.compute_instances {
            let of_compute = offered.iter().find(|offered| offered.id == compute.profile).expect("offered");
            assert!(of_compute.starts.contains(&compute.start) && of_compute.slices == compute.size);
            for slice in compute.start..compute.start + compute.size {
                assert!(slice < profile.compute_slices && slices.insert(slice), "compute slice {slice}");
            }
            assert!(ids.insert(compute.id) && compute.id < 8, "id {}", compute.id);
        }
    }
    for (kind, sum) in engines.into_iter().enumerate() {
        let most = whole.clone().filter_map(|engines| engines[kind]).max();
        assert!(most.is_none_or(|most| sum <= most), "engines of kind {kind}: {sum}");
    }
    assert!(mig.devices().count() as u32 <= model.compute_slices);
    let serials: BTreeSet<u64> = mig
        .instances
        .iter()
        .map(|gpu| gpu.serial)
        .chain(mig.devices().map(|(_, compute)| compute.serial))
        .collect();
    assert_eq!(serials.len(), mig.instances.len() + mig.devices().count(), "serial numbers are distinct");
    assert!(serials.last().is_none_or(|serial| *serial <= mig.last_serial));
}

proptest! {
    #[test]
    fn no_sequence_of_orders_leads_to_a_forbidden_state(
        name in prop::sample::select(mig_model_names()),
        swapped in any::<bool>(),
        orders in prop::collection::vec(order(), 0..60),
    ) {
        let (model, _) = mig_model(name).expect("a model");
        let mut mig = Mig { enabled: true, pending: true, ..Mig::default() };
        for order in &orders {
            let before = mig.clone();
            let outcome = obey(&model, &mut mig, order, swapped);
            if outcome.is_err() && !matches!(order, Order::Mode(..)) {
                prop_assert_eq!(&before, &mig, "what is refused changes nothing");
            }
            check(&model, &mig, swapped);
        }
    }
}
