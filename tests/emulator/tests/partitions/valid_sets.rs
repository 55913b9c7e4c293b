//! Every set of GPU instances that can be reached, counted: the numbers are those of a simulation that knows nothing of this
//! emulator, and of NVIDIA's MIG User Guide (19 layouts of an A100).

use std::collections::{BTreeMap, BTreeSet};

use tessera_emulator::failure::Failure;
use tessera_emulator::hardware::mig::GpuInstanceProfile;
use tessera_emulator::hardware::{MigModel, mig_model, mig_model_names};
use tessera_emulator::mig::gpu;
use tessera_emulator::state::Mig;

/// Profile and start of every instance.
type Set = BTreeSet<(u32, u32)>;

fn reached(model: &MigModel, offered: impl Fn(&GpuInstanceProfile) -> bool) -> (usize, usize) {
    let profiles: Vec<&GpuInstanceProfile> =
        model.profiles.iter().filter(|profile| offered(profile)).collect();
    let empty = Mig { enabled: true, pending: true, ..Mig::default() };
    let mut seen: BTreeMap<Set, Mig> = BTreeMap::from([(Set::new(), empty)]);
    let mut open: Vec<Set> = vec![Set::new()];
    let mut maximal = 0;
    while let Some(set) = open.pop() {
        let mut more = false;
        for profile in &profiles {
            for start in &profile.starts {
                let mut mig = seen[&set].clone();
                match gpu::create(model, &mut mig, profile.id, Some((*start, profile.memory_slices)), false) {
                    Ok(_) => {}
                    Err(Failure::INSUFFICIENT_RESOURCES) => continue,
                    Err(Failure(code)) => panic!("{} at {start}: {code}", profile.name),
                }
                more = true;
                let mut larger = set.clone();
                larger.insert((profile.id, *start));
                if seen.insert(larger.clone(), mig).is_none() {
                    open.push(larger);
                }
            }
        }
        maximal += usize::from(!more);
    }
    (seen.len(), maximal)
}

/// Neither more media engines, nor fewer, nor graphics.
fn plain(profile: &GpuInstanceProfile) -> bool {
    !profile.name.contains('+') && !profile.name.contains("-me")
}

/// `NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2`
const DOUBLE_MEMORY: u32 = 9;

#[test]
fn the_sets_of_plain_profiles_are_those_of_the_hardware() {
    for name in mig_model_names() {
        let (model, _) = mig_model(name).expect("a model");
        let all = reached(&model, plain);
        let narrow = reached(&model, |profile| plain(profile) && profile.enumerator != DOUBLE_MEMORY);
        if model.memory_slices == 8 {
            assert_eq!((all, narrow), ((723, 78), (298, 19)), "{name}");
        } else {
            assert_eq!((all, narrow), ((26, 5), (26, 5)), "{name}");
        }
    }
}

#[test]
fn engines_are_used_up() {
    let (model, _) = mig_model("a30-24gb").expect("the A30");
    let mut mig = Mig { enabled: true, ..Mig::default() };
    // 2g.12gb+me takes the only JPEG engine and the only OFA, so that no 1g.6gb+me can lie beside it.
    gpu::create(&model, &mut mig, 6, Some((0, 2)), false).expect("a 2g+me");
    let refused = gpu::create(&model, &mut mig, 21, Some((2, 1)), false);
    assert_eq!(refused, Err(Failure::INSUFFICIENT_RESOURCES));
    gpu::create(&model, &mut mig, 14, Some((2, 1)), false).expect("a plain 1g");
    let (model, _) = mig_model("rtx-pro-6000-96gb").expect("the RTX PRO 6000");
    let mut mig = Mig { enabled: true, ..Mig::default() };
    // 1g.24gb+me.all takes all four decoders: beside it there are only instances without any.
    gpu::create(&model, &mut mig, 65, Some((0, 3)), false).expect("a 1g+me.all");
    let refused = gpu::create(&model, &mut mig, 14, Some((3, 3)), false);
    assert_eq!(refused, Err(Failure::INSUFFICIENT_RESOURCES));
    gpu::create(&model, &mut mig, 67, Some((3, 3)), false).expect("a 1g-me");
    gpu::create(&model, &mut mig, 66, Some((6, 6)), false).expect("a 2g-me");
}

#[test]
fn ids_are_those_of_captures() {
    let (a100, _) = mig_model("a100-40gb").expect("the A100");
    // nvidia-smi mig -lgi of A100 cards: the guide's, where halves count from the top, and others, where not.
    for (start, size, swapped) in
        [(4, 4, 1), (0, 4, 2), (4, 2, 3), (2, 2, 6), (6, 1, 9), (0, 1, 11), (1, 1, 12)]
    {
        assert_eq!(gpu::id(&a100, start, size, true), swapped, "{start}:{size}");
    }
    for (start, size, id) in [(4, 4, 2), (0, 2, 3), (2, 1, 9), (0, 8, 0)] {
        assert_eq!(gpu::id(&a100, start, size, false), id, "{start}:{size}");
    }
    let (rtx, _) = mig_model("rtx-pro-6000-96gb").expect("the RTX PRO 6000");
    for (start, size, id) in [(0, 6, 1), (6, 3, 5), (9, 3, 6), (0, 3, 3)] {
        assert_eq!(gpu::id(&rtx, start, size, false), id, "{start}:{size}");
    }
    let (a30, _) = mig_model("a30-24gb").expect("the A30");
    assert_eq!((0..4).map(|start| gpu::id(&a30, start, 1, false)).collect::<Vec<_>>(), [3, 4, 5, 6]);
}

#[test]
fn nobody_is_surprised_by_where_the_driver_puts_instances() {
    let (model, _) = mig_model("a100-40gb").expect("the A100");
    let places = |profiles: &[u32]| {
        let mut mig = Mig { enabled: true, ..Mig::default() };
        for profile in profiles {
            gpu::create(&model, &mut mig, *profile, None, false).expect("it fits");
        }
        mig.instances.iter().map(|instance| (instance.profile, instance.start)).collect::<BTreeSet<_>>()
    };
    // NVIDIA's guide makes 3g, 2g, 1g, 1g in this order, and two 3g.
    assert_eq!(places(&[9, 14, 19, 19]), BTreeSet::from([(9, 4), (14, 0), (19, 2), (19, 3)]));
    assert_eq!(places(&[9, 9]), BTreeSet::from([(9, 0), (9, 4)]));
    assert_eq!(places(&[19; 7]).len(), 7);
    assert_eq!(places(&[5, 14, 19]).len(), 3);
}
